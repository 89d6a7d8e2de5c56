#pragma once

#include <gtest/gtest.h>
#include <hwy/detect_targets.h>
#include <hwy/targets.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <string>
#include <vector>

namespace tessera::kernels {

// How far a kernel may be from the same expression in fp64 on the same (rounded) inputs, in
// |difference| / (|reference| + root mean square of the reference + floor), where the floor is the
// size of the terms that may cancel.
struct Tolerance {
  at::ScalarType dtype;
  double limit;
};
inline constexpr Tolerance kTolerances[] = {
    // A handful of roundings of 6e-8 each, and an exponential of 2e-7.
    {at::kFloat, 2e-6},
    // As above, of 1.1e-16 each; sums of some hundred terms.
    {at::kDouble, 1e-14},
    // One rounding at the end: half of 2^-7 for the worst mantissa, and what fp32 moves over a tie.
    {at::kBFloat16, 4e-3},
    // The same with half of 2^-10.
    {at::kHalf, 6e-4},
};

inline double tolerance(at::ScalarType dtype) {
  for (const auto& entry : kTolerances) {
    if (entry.dtype == dtype) return entry.limit;
  }
  ADD_FAILURE() << "no tolerance for " << c10::toString(dtype);
  return 0;
}

inline void expect_close(const at::Tensor& actual, const at::Tensor& reference,
                         const std::string& what, double floor = 1e-300) {
  ASSERT_EQ(actual.sizes(), reference.sizes()) << what;
  const auto r = reference.to(at::kDouble);
  const auto scale = r.abs() + r.square().mean().sqrt() + floor;
  const auto error = ((actual.to(at::kDouble) - r).abs() / scale).max().item<double>();
  EXPECT_LE(error, tolerance(actual.scalar_type())) << what;  // false for NaN too
}

// Equal bits but for the payload of NaNs.
inline bool same_values(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         at::allclose(a.to(at::kDouble), b.to(at::kDouble), 0, 0, /*equal_nan=*/true);
}

// Runs on each instruction set that the kernels are built for and this machine has. Tensors from
// guarded() start one element off any alignment, hold NaN (so that a forgotten write shows) and
// have guards on both sides that must be intact at the end.
class KernelTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { use_target(GetParam()); }
  void TearDown() override {
    use_target(0);
    for (const auto& whole : buffers_) {
      const auto guard = at::full({kGuard}, kMark, whole.options());
      EXPECT_TRUE(at::equal(whole.narrow(0, 0, kGuard), guard)) << "written before the start";
      EXPECT_TRUE(at::equal(whole.narrow(0, whole.numel() - kGuard, kGuard), guard))
          << "written beyond the end";
    }
  }

  // 0 gives the best one again.
  static void use_target(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }

  at::Tensor guarded(at::IntArrayRef sizes, at::ScalarType dtype) {
    const int64_t numel = c10::multiply_integers(sizes);
    const auto whole = at::full({numel + 2 * kGuard}, kMark, dtype);
    buffers_.push_back(whole);
    const auto inner = whole.narrow(0, kGuard, numel);
    inner.fill_(NAN);
    return inner.view(sizes);
  }
  at::Tensor guarded_copy(const at::Tensor& source) {
    const auto copy = guarded(source.sizes(), source.scalar_type());
    copy.copy_(source);
    return copy;
  }
  // Normal numbers, the same on every run.
  at::Tensor randn(at::IntArrayRef sizes, at::ScalarType dtype, double scale = 1) {
    const auto values = at::randn(sizes, generator_, at::TensorOptions(at::kDouble)) * scale;
    return guarded_copy(values.to(dtype));
  }

  at::Generator generator_ = at::detail::createCPUGenerator(7);

 private:
  static constexpr int64_t kGuard = 33;
  static constexpr double kMark = 77;
  std::vector<at::Tensor> buffers_;
};

inline std::vector<int64_t> available_targets() {
  std::vector<int64_t> targets;
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  return targets;
}

inline std::string target_name(const ::testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

inline constexpr at::ScalarType kActivationTypes[] = {at::kFloat, at::kDouble, at::kBFloat16,
                                                      at::kHalf};

// The message of the exception that `call` throws.
template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

#define EXPECT_MESSAGE(call, text)                                   \
  EXPECT_NE(message_of([&] { call; }).find(text), std::string::npos) \
      << "the message is: " << message_of([&] { call; })

#define INSTANTIATE_FOR_TARGETS(suite) \
  INSTANTIATE_TEST_SUITE_P(Targets, suite, ::testing::ValuesIn(available_targets()), target_name)

}  // namespace tessera::kernels

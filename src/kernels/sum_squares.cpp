// Sum of squares in fp64.
#include <algorithm>
#include <vector>

#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sum_squares.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

// Element i of a block goes to sum i % kSums whatever the width of a vector, so that the order of
// additions is the same on every machine. (For fp64 a fused multiply-add still rounds differently.)
constexpr int64_t kSums = 32;

template <typename T>
double sum_block(const T* x, int64_t count) {
  const DD d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DD()));
  constexpr int64_t kVectors = kSums / kLanes;
  hn::Vec<DD> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  const auto add_group = [&](const T* group) TESSERA_BODY {
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto v = load(d, group + k * kLanes);
      sums[k] = hn::MulAdd(v, v, sums[k]);
    }
  };
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) add_group(x + i);
  if (i < count) {
    T rest[kSums] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(count - i) * sizeof(T));
    add_group(rest);
  }
  double lanes[kSums];
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], d, lanes + k * kLanes);
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

double sum_squares_target(at::ScalarType dtype, const void* x, int64_t begin, int64_t count) {
  double sum = 0;
  with_any_type("sum_squares", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    sum = sum_block(static_cast<const T*>(x) + begin, count);
  });
  return sum;
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

constexpr int64_t kBlock = 1 << 16;  // elements whose squares are summed by one thread

}  // namespace

HWY_EXPORT(sum_squares_target);

double sum_squares(const at::Tensor& x) {
  check_contiguous("sum_squares", {{"x", x}});
  if (x.is_cuda()) return cuda::sum_squares(x).item<double>();
  const int64_t numel = x.numel();
  std::vector<double> sums(static_cast<size_t>((numel + kBlock - 1) / kBlock));
  const auto kernel = TESSERA_DISPATCH(sum_squares_target);
  const auto dtype = x.scalar_type();
  const void* data = x.const_data_ptr();
  for_ranges(static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t start = b * kBlock;
      sums[static_cast<size_t>(b)] = kernel(dtype, data, start, std::min(kBlock, numel - start));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

void add_sum_squares(const at::Tensor& x, const at::Tensor& sum) {
  check_dtype("add_sum_squares", {"sum", sum}, at::kDouble);
  check_numel("add_sum_squares", {"sum", sum}, 1);
  check_contiguous("add_sum_squares", {{"sum", sum}, {"x", x}});
  if (x.is_cuda()) {
    sum.add_(cuda::sum_squares(x));
  } else {
    *sum.mutable_data_ptr<double>() += sum_squares(x);
  }
}

}  // namespace tessera::kernels
#endif

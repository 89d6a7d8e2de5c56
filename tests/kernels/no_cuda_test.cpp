#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/kernels.h"
#include "kernels/optimizers.h"
#include "support/gpu_tensor.h"

namespace tessera::kernels {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_start(const std::string& text, const std::string& start) {
  EXPECT_EQ(text.substr(0, start.size()), start);
}

constexpr const char* kWithout =
    ": the tensors lie on cuda:0; this program was built without CUDA; configure with `cmake "
    "--preset "
    "cuda` and build that";

TEST(NoCuda, EachKernelSaysThatItWasBuiltWithoutCuda) {
  const auto x = testing::pretended_gpu_tensor(8);
  const auto sum = testing::pretended_gpu_tensor(4);
  const auto rows = testing::pretended_gpu_tensor(8, 1);
  EXPECT_EQ(refusal([&] { convert(x, x); }), std::string("[kernels] convert") + kWithout);
  EXPECT_EQ(refusal([&] { add_into(x, x); }), std::string("[kernels] add_into") + kWithout);
  EXPECT_EQ(refusal([&] { sum_squares(x); }), std::string("[kernels] sum_squares") + kWithout);
  EXPECT_EQ(refusal([&] { sum_slices(sum, x); }), std::string("[kernels] sum_slices") + kWithout);
  const auto one = testing::pretended_gpu_tensor(1);
  EXPECT_EQ(refusal([&] { rms_norm_apply(rows, one, x, rows); }),
            std::string("[kernels] rms_norm_apply") + kWithout);
  EXPECT_EQ(refusal([&] { rms_norm_forward(rows, {}, one, 1e-5, rows, x, {}); }),
            std::string("[kernels] rms_norm_forward") + kWithout);
  EXPECT_EQ(refusal([&] { rms_norm_backward(rows, rows, one, x, {}, rows, one); }),
            std::string("[kernels] rms_norm_backward") + kWithout);
  EXPECT_EQ(refusal([&] { cross_entropy_max(rows, x); }),
            std::string("[kernels] cross_entropy_max") + kWithout);
  const AdamScalars scalars{
      .lr = 1, .beta1 = 0, .beta2 = 0, .eps = 1, .weight_decay = 0, .decoupled = true, .step = 1};
  EXPECT_EQ(refusal([&] { adam(x, x, x, x, scalars); }), std::string("[kernels] adam") + kWithout);
  const SgdScalars plain{.lr = 1, .momentum = 0, .weight_decay = 0, .nesterov = false};
  EXPECT_EQ(refusal([&] { sgd(x, x, {}, plain); }), std::string("[kernels] sgd") + kWithout);
}

TEST(NoCuda, ArgumentsMustLieOnOneDevice) {
  const auto gpu = testing::pretended_gpu_tensor(8);
  const auto cpu = at::zeros({8});
  expect_start(refusal([&] { convert(gpu, cpu); }),
               "[kernels] convert: src is on cpu; it must be on cuda:0");
  expect_start(refusal([&] { convert(cpu, gpu); }),
               "[kernels] convert: src is on cuda:0; it must be on cpu");
  const auto rows = testing::pretended_gpu_tensor(8, 1);
  expect_start(refusal([&] { cross_entropy_max(rows, cpu); }),
               "[kernels] cross_entropy_max: row_max is on cpu; it must be on cuda:0");
  expect_start(refusal([&] { rms_norm_apply(rows, gpu, cpu, rows); }),
               "[kernels] rms_norm_apply: rstd is on cpu; it must be on cuda:0");
}

}  // namespace
}  // namespace tessera::kernels

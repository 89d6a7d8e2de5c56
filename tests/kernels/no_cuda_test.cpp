#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/kernels.h"
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
  EXPECT_EQ(refusal([&] { convert(x, x); }), std::string("[kernels] convert") + kWithout);
  EXPECT_EQ(refusal([&] { add_into(x, x); }), std::string("[kernels] add_into") + kWithout);
  EXPECT_EQ(refusal([&] { sum_squares(x); }), std::string("[kernels] sum_squares") + kWithout);
  EXPECT_EQ(refusal([&] { sum_slices(sum, x); }), std::string("[kernels] sum_slices") + kWithout);
}

TEST(NoCuda, ArgumentsMustLieOnOneDevice) {
  const auto gpu = testing::pretended_gpu_tensor(8);
  const auto cpu = at::zeros({8});
  expect_start(refusal([&] { convert(gpu, cpu); }),
               "[kernels] convert: src is on cpu; it must be on cuda:0");
  expect_start(refusal([&] { convert(cpu, gpu); }),
               "[kernels] convert: src is on cuda:0; it must be on cpu");
}

}  // namespace
}  // namespace tessera::kernels

// Each test runs in a process of its own, forked before the target is chosen.
#include "kernels/cpu_target.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "kernels/kernels.h"

namespace tessera::kernels {
namespace {

// Ends the process with 0; says on stderr which target TESSERA_CPU=`limit` gives.
[[noreturn]] void say_target(const char* limit) {
  if (limit == nullptr)
    unsetenv("TESSERA_CPU");
  else
    setenv("TESSERA_CPU", limit, 1);
  try {
    std::fprintf(stderr, "target %s\n", cpu_target());
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::_Exit(0);
}

void expect_target(const char* limit, const std::string& text) {
  EXPECT_EXIT(say_target(limit), testing::ExitedWithCode(0), text) << (limit ? limit : "unset");
}

TEST(CpuTarget, TheLimitIsWhatIsChosen) {
  expect_target("scalar", "target scalar\n");
  if (__builtin_cpu_supports("sse4.2")) expect_target("sse4", "target sse4\n");
  if (__builtin_cpu_supports("avx2")) expect_target("avx2", "target avx2\n");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  if (avx512) expect_target("avx512", "target avx512\n");
}

// What the machine does not have cannot be asked for, and a limit above it limits nothing.
TEST(CpuTarget, WithoutALimitTheBestIsChosen) {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  const std::string best = avx512                           ? "avx512"
                           : __builtin_cpu_supports("avx2") ? "avx2"
                                                            : "(sse4|scalar)";
  for (const char* limit : {static_cast<const char*>(nullptr), "", "avx512"})
    expect_target(limit, "target " + best + "\n");
}

TEST(CpuTarget, AnUnknownValueIsAnErrorThatListsAll) {
  for (const char* wrong : {"avx", "AVX2", "none", "0"})
    expect_target(wrong, std::string("TESSERA_CPU is '") + wrong +
                             "'; it must be one of avx512, avx2, sse4, scalar");
}

// What a kernel computes shows which of its forms ran. In fp64, with e = 1.25 x 2^-27, the square
// of 1 + e is 1 + 2 e + e^2, and e^2 is less than half of the last bit: alone it is rounded off.
// AVX2 adds the square unrounded to the 2^-54 that is there already (the sum takes every 32nd
// element), and together these are more than half of a bit.
double sum_of_two_squares() {
  const at::Tensor x = at::zeros({64}, at::kDouble);
  x[0] = 0x1p-27;
  x[32] = 1 + 1.25 * 0x1p-27;
  return sum_squares(x);
}

std::string sum_text(double sum) {
  return fmt::format("sum {:.17g}\n", sum);
}

void expect_sum(const char* limit, double wanted) {
  EXPECT_EXIT(
      {
        setenv("TESSERA_CPU", limit, 1);
        std::fputs(sum_text(sum_of_two_squares()).c_str(), stderr);
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), sum_text(wanted))
      << limit;
}

TEST(CpuTarget, KernelsRunOnTheChosenOne) {
  const double rounded_first = 1 + 2 * 1.25 * 0x1p-27;
  if (__builtin_cpu_supports("avx2")) expect_sum("avx2", rounded_first + 0x1p-52);
  if (__builtin_cpu_supports("sse4.2")) expect_sum("sse4", rounded_first);
#ifndef __FMA__  // (with it the compiler makes fused operations of plain C++ as well)
  expect_sum("scalar", rounded_first);
#endif
}

}  // namespace
}  // namespace tessera::kernels

#include "kernels/cpu_target.h"

#include <fmt/ranges.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu_target.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

int64_t own_target() {
  return HWY_TARGET;
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(own_target);

// Highway gives each instruction set a bit, the better the lower. HWY_EMU128 and HWY_SCALAR are the
// highest two; which of them is plain C++ depends on the compiler.
struct Target {
  const char* name;
  int64_t best;
};
constexpr Target kTargets[] = {
    {"avx512", HWY_AVX3}, {"avx2", HWY_AVX2}, {"sse4", HWY_SSE4}, {"scalar", HWY_EMU128}};

void limit_to(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Target& target : kTargets) {
    if (name == target.name) return hwy::DisableTargets(target.best - 1);
    names.push_back(target.name);
  }
  fail_user("kernels",
            "TESSERA_CPU is '{}'; it must be one of {}, the best instruction set that the kernels "
            "may use, or unset",
            name, fmt::join(names, ", "));
}

const char* choose() {
  const char* limit = std::getenv("TESSERA_CPU");
  if (limit != nullptr && *limit != '\0') limit_to(limit);
  // Settled here, by one thread: Highway's own first dispatch would do it again in each.
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  const int64_t chosen = HWY_DYNAMIC_DISPATCH(own_target)();
  for (const Target& target : kTargets)
    if (chosen == target.best) return target.name;
  return chosen == HWY_SCALAR ? "scalar"
                              : hwy::TargetName(chosen);  // (the latter on other than x86)
}

}  // namespace

const char* cpu_target() {
  static const char* const target = choose();
  return target;
}

}  // namespace tessera::kernels
#endif

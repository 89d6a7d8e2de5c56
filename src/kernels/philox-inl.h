// Words of counted random numbers, many at once (base/philox.h has the generator and its source).
#include <cstdint>

#if defined(TESSERA_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_PHILOX_INL_H_
#undef TESSERA_KERNELS_PHILOX_INL_H_
#else
#define TESSERA_KERNELS_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include "base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kDropoutGroup = 64;

// factors[j] <- scale where element j of group `group` of the row (hi, lo) is kept, else 0. Word w
// of block 16 group + i decides over element 16 w + i: the compiler then works on whole vectors.
template <typename W>
HWY_INLINE void dropout_factors(uint64_t key, uint64_t hi, uint32_t lo, int64_t group,
                                uint32_t threshold, W scale, W* factors) {
  constexpr int kBlocks = 16;
  const auto hi0 = static_cast<uint32_t>(hi), hi1 = static_cast<uint32_t>(hi >> 32);
  const auto first = static_cast<uint32_t>(group) * kBlocks;
  uint32_t words[4][kBlocks];
  for (uint32_t i = 0; i < kBlocks; ++i) {
    uint32_t c[4] = {first + i, lo, hi0, hi1};
    philox_rounds(c, static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
    for (int w = 0; w < 4; ++w) words[w][i] = c[w];
  }
  for (int w = 0; w < 4; ++w)
    for (int i = 0; i < kBlocks; ++i)
      factors[w * kBlocks + i] = words[w][i] >= threshold ? scale : W(0);
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#include "base/philox.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

// Start-up draws every weight, so this is vectorised by the compiler, once per instruction set.
// Sanitizers are not ready when the loader resolves such functions.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define TESSERA_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TESSERA_CLONES
#endif

namespace tessera {
namespace {

constexpr int kBlocks = 64;  // blocks drawn at once

// log(u) for a normal number 0 < u <= 1, to about one unit in the last place: u = m 2^e with m near
// 1, log m = 2 artanh((m - 1) / (m + 1)).
inline float log_unit(float u) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3;
  const uint32_t shifted = std::bit_cast<uint32_t>(u) - kSqrtHalf;
  const auto exponent = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float m = std::bit_cast<float>((shifted & 0x007fffff) + kSqrtHalf);
  const float s = (m - 1.0F) / (m + 1.0F);
  const float s2 = s * s;
  const float series = 2.0F / 3 + s2 * (2.0F / 5 + s2 * (2.0F / 7 + s2 * (2.0F / 9)));
  return exponent * std::numbers::ln2_v<float> + (2.0F * s + s * s2 * series);
}

// Four normal numbers of each of kBlocks consecutive blocks, lane by lane: out[lane * kBlocks + i].
// Nothing but IEEE additions, products, quotients and roots, none of them fused
// (-ffp-contract=off): the bits are the same on every processor.
TESSERA_CLONES void normal_lanes(uint64_t key, uint64_t stream, uint64_t first_block, float std,
                                 float* out) {
  const auto hi0 = static_cast<uint32_t>(stream), hi1 = static_cast<uint32_t>(stream >> 32);
  for (int i = 0; i < kBlocks; ++i) {
    const uint64_t lo = first_block + static_cast<uint64_t>(i);
    uint32_t words[4] = {static_cast<uint32_t>(lo), static_cast<uint32_t>(lo >> 32), hi0, hi1};
    philox_rounds(words, static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t radius_word = words[2 * pair], angle_word = words[2 * pair + 1];
      // u in (0, 1]: (word + 1/2) / 2^32, rounded to fp32. Signed conversions are what AVX2 has.
      const float high = static_cast<float>(static_cast<int32_t>(radius_word >> 8));
      const float low = static_cast<float>(static_cast<int32_t>(radius_word & 0xff));
      const float u = high * 0x1p-24F + (low + 0.5F) * 0x1p-32F;
      const float scale = std * std::sqrt(-log_unit(u));
      // The top two bits are the quadrant; x is the angle inside it, from its middle. With
      // a = x + pi/4: sqrt(2) cos a = cos x - sin x and sqrt(2) sin a = cos x + sin x, and the
      // radius sqrt(-2 log u) brings the sqrt(2).
      const float part =
          (static_cast<float>(static_cast<int32_t>((angle_word >> 6) & 0xffffff)) + 0.5F) *
          0x1p-24F;
      const float x = (part - 0.5F) * (std::numbers::pi_v<float> / 2);
      const float x2 = x * x;
      const float sine =
          x + x * x2 * (-1.0F / 6 + x2 * (1.0F / 120 + x2 * (-1.0F / 5040 + x2 * (1.0F / 362880))));
      const float cosine =
          1.0F +
          x2 * (-0.5F + x2 * (1.0F / 24 +
                              x2 * (-1.0F / 720 + x2 * (1.0F / 40320 + x2 * (-1.0F / 3628800)))));
      const float a = scale * (cosine - sine), b = scale * (cosine + sine);
      const uint32_t quadrant = angle_word >> 30;
      const float swapped_a = (quadrant & 1) ? -b : a, swapped_b = (quadrant & 1) ? a : b;
      out[(2 * pair) * kBlocks + i] = (quadrant & 2) ? -swapped_a : swapped_a;
      out[(2 * pair + 1) * kBlocks + i] = (quadrant & 2) ? -swapped_b : swapped_b;
    }
  }
}

}  // namespace

void Philox::normals(uint64_t stream, uint64_t first, double std, float* out, int64_t count) const {
  float lanes[4 * kBlocks];
  const uint64_t end = first + static_cast<uint64_t>(count);
  for (uint64_t block = first / 4; 4 * block < end; block += kBlocks) {
    normal_lanes(key_, stream, block, static_cast<float>(std), lanes);
    const uint64_t from = std::max(first, 4 * block), to = std::min(end, 4 * (block + kBlocks));
    for (uint64_t index = from; index < to; ++index)
      out[index - first] = lanes[(index % 4) * kBlocks + (index / 4 - block)];
  }
}

}  // namespace tessera

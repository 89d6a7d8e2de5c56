#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

// The ten rounds of Philox4x32-10 on the counter `c` and the key (k0, k1), in place: plain
// arithmetic of 32 bits, which compilers vectorise over a loop of counters. Always inlined: callers
// are compiled for different instruction sets, and the linker would keep only one copy of a
// function for all of them.
__attribute__((always_inline)) inline void philox_rounds(uint32_t (&c)[4], uint32_t k0,
                                                         uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<uint32_t>(p1);
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011). A value is a function of (key, counter) alone, so weights and masks are the
// same on every mesh and nothing needs to be saved.
class Philox {
 public:
  explicit Philox(uint64_t key) : key_(key) {}

  // The four 32-bit words of block (hi, lo).
  std::array<uint32_t, 4> block(uint64_t lo, uint64_t hi = 0) const {
    uint32_t c[4] = {static_cast<uint32_t>(lo), static_cast<uint32_t>(lo >> 32),
                     static_cast<uint32_t>(hi), static_cast<uint32_t>(hi >> 32)};
    philox_rounds(c, static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32));
    return {c[0], c[1], c[2], c[3]};
  }

  // out[i] <- std * the standard normal number of element first + i of stream `stream`, for i <
  // count. Box-Muller; a block gives the four numbers of elements 4k .. 4k+3, so each number
  // depends on (key, stream, element) alone, wherever a run of elements starts.
  void normals(uint64_t stream, uint64_t first, double std, float* out, int64_t count) const;

 private:
  uint64_t key_;
};

// 64-bit FNV-1a: names a random stream after a parameter. Fixed for ever: it decides initial
// weights.
constexpr uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace tessera

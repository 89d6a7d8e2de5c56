#include "data/fingerprint.h"

#include "base/xxh3.h"

namespace tessera {

std::string pair_digest(const MappedFile& idx, const MappedFile& bin) {
  constexpr int64_t kBlocks = 16, kBlockBytes = int64_t{1} << 20;
  Xxh3 hash;
  hash.update(idx.data(), static_cast<size_t>(idx.size()));
  const int64_t size = bin.size();
  if (size <= kBlocks * kBlockBytes) {
    hash.update(bin.data(), static_cast<size_t>(size));
    return hash.hex();
  }
  hash.update(&size, sizeof size);
  for (int64_t i = 0; i < kBlocks; ++i) {
    // last x i / 15, without the product that could pass 2^63.
    const int64_t last = size - kBlockBytes, parts = kBlocks - 1;
    const int64_t begin = last / parts * i + last % parts * i / parts;
    hash.update(bin.data() + begin, static_cast<size_t>(kBlockBytes));
  }
  return hash.hex();
}

}  // namespace tessera

#include "data/fingerprint.h"

#include "base/xxh3.h"

namespace tessera {
namespace {

void add_sample(Xxh3& hash, const MappedFile& file) {
  constexpr int64_t kBlocks = 16, kBlockBytes = int64_t{1} << 20;
  const int64_t size = file.size();
  if (size <= kBlocks * kBlockBytes) {
    hash.update(file.data(), static_cast<size_t>(size));
    return;
  }
  hash.update(&size, sizeof size);
  for (int64_t i = 0; i < kBlocks; ++i) {
    // last x i / 15, without the product that could pass 2^63.
    const int64_t last = size - kBlockBytes, parts = kBlocks - 1;
    const int64_t begin = last / parts * i + last % parts * i / parts;
    hash.update(file.data() + begin, static_cast<size_t>(kBlockBytes));
  }
}

}  // namespace

std::string pair_digest(const MappedFile& idx, const MappedFile& bin) {
  Xxh3 hash;
  hash.update(idx.data(), static_cast<size_t>(idx.size()));
  add_sample(hash, bin);
  return hash.hex();
}

std::string file_digest(const MappedFile& file) {
  Xxh3 hash;
  add_sample(hash, file);
  return hash.hex();
}

}  // namespace tessera

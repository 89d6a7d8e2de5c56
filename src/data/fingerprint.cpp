#include "data/fingerprint.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/xxh3.h"

namespace tessera {
namespace {

void add_part(Xxh3& hash, const DataFile& file, int64_t begin, int64_t bytes) {
  constexpr int64_t kBuffer = int64_t{1} << 20;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kBuffer, bytes)));
  for (int64_t done = 0; done < bytes;) {
    const auto part = std::span(buffer).first(static_cast<size_t>(std::min(kBuffer, bytes - done)));
    file.read(begin + done, part);
    hash.update(part.data(), part.size());
    done += static_cast<int64_t>(part.size());
  }
}

void add_sample(Xxh3& hash, const DataFile& file) {
  constexpr int64_t kBlocks = 16, kBlockBytes = int64_t{1} << 20;
  const int64_t size = file.size();
  if (size <= kBlocks * kBlockBytes) {
    add_part(hash, file, 0, size);
    return;
  }
  hash.update(&size, sizeof size);
  for (int64_t i = 0; i < kBlocks; ++i) {
    // last x i / 15, without the product that could pass 2^63.
    const int64_t last = size - kBlockBytes, parts = kBlocks - 1;
    const int64_t begin = last / parts * i + last % parts * i / parts;
    add_part(hash, file, begin, kBlockBytes);
  }
}

}  // namespace

std::string dataset_digest(const DataFile& idx, const DataFile& bin) {
  Xxh3 hash;
  add_part(hash, idx, 0, idx.size());
  add_sample(hash, bin);
  return hash.hex();
}

std::string file_digest(const DataFile& file) {
  Xxh3 hash;
  add_sample(hash, file);
  return hash.hex();
}

}  // namespace tessera

#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// Shares tensors of these sizes out to files of at most `limit` bytes, in their order: file i holds
// the tensors from the end of file i - 1 up to result[i]. A tensor larger than a file has one to
// itself.
inline std::vector<size_t> fill_files(const std::vector<int64_t>& bytes, int64_t limit) {
  std::vector<size_t> ends;
  int64_t filled = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && bytes[i] > limit - filled) {
      ends.push_back(i);
      filled = 0;
    }
    filled += bytes[i];
  }
  if (!bytes.empty()) ends.push_back(bytes.size());
  return ends;
}

}  // namespace tessera

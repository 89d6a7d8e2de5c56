#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace tessera {

// The safetensors format (Hugging Face): u64 little-endian length n, n bytes of JSON header, data.
// The header maps a tensor's name to dtype, shape and [begin, end) in the data; "__metadata__" maps
// strings to strings.

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the reference library's limit

// The number of elements of a shape; -1 if a size is negative, or if the size in bytes or a stride
// does not fit int64.
int64_t checked_numel(const std::vector<int64_t>& shape, Dtype dtype);

}  // namespace tessera

#include "safetensors/format.h"

#include <algorithm>

namespace tessera {

int64_t checked_numel(const std::vector<int64_t>& shape, Dtype dtype) {
  // Sizes of 0 count as 1 here: strides of such a shape must fit as well.
  int64_t span = dtype_size(dtype);
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(span, std::max<int64_t>(size, 1), &span)) return -1;
    empty |= size == 0;
  }
  return empty ? 0 : span / dtype_size(dtype);
}

}  // namespace tessera

#include "parallel/comm/core/reduce_ranks.h"

#include <c10/core/ScalarType.h>

#include "base/error.h"
#include "kernels/kernels.h"

namespace tessera {
namespace {

template <typename T, typename Combine>
void reduce_typed(void* out, const void* const* src, int count, int64_t numel, Combine combine) {
  T* result = static_cast<T*>(out);
  for (int64_t i = 0; i < numel; ++i) {
    T value = static_cast<const T*>(src[0])[i];
    for (int k = 1; k < count; ++k) value = combine(value, static_cast<const T*>(src[k])[i]);
    result[i] = value;
  }
}

// Comparisons with NaN are false, so `b != b` lets a NaN replace a number and a NaN stays.
template <typename T>
void reduce_extreme(void* out, const void* const* src, int count, int64_t numel, ReduceOp op) {
  if (op == ReduceOp::kMax)
    reduce_typed<T>(out, src, count, numel, [](T a, T b) { return b > a || b != b ? b : a; });
  else
    reduce_typed<T>(out, src, count, numel, [](T a, T b) { return b < a || b != b ? b : a; });
}

template <typename T>
void reduce_integers(void* out, const void* const* src, int count, int64_t numel, ReduceOp op) {
  if (op == ReduceOp::kSum)
    reduce_typed<T>(out, src, count, numel, [](T a, T b) { return static_cast<T>(a + b); });
  else
    reduce_extreme<T>(out, src, count, numel, op);
}

}  // namespace

void reduce_ranks(void* out, at::ScalarType out_dtype, const void* const* src, at::ScalarType dtype,
                  int count, int64_t numel, ReduceOp op) {
  switch (dtype) {
    // Unsigned, so that a sum that overflows wraps as in other backends.
    case at::kLong:
      if (op == ReduceOp::kSum) return reduce_integers<uint64_t>(out, src, count, numel, op);
      return reduce_extreme<int64_t>(out, src, count, numel, op);
    case at::kInt:
      if (op == ReduceOp::kSum) return reduce_integers<uint32_t>(out, src, count, numel, op);
      return reduce_extreme<int32_t>(out, src, count, numel, op);
    case at::kByte:
      return reduce_integers<uint8_t>(out, src, count, numel, op);
    default:
      break;
  }
  if (op == ReduceOp::kSum) return kernels::sum_ranks(out, out_dtype, src, dtype, count, numel);
  switch (dtype) {
    case at::kDouble:
      return reduce_extreme<double>(out, src, count, numel, op);
    case at::kFloat:
      return reduce_extreme<float>(out, src, count, numel, op);
    case at::kBFloat16:
      return reduce_extreme<at::BFloat16>(out, src, count, numel, op);
    case at::kHalf:
      return reduce_extreme<at::Half>(out, src, count, numel, op);
    default:
      fail("comm", "reductions do not know dtype {}", c10::toString(dtype));
  }
}

}  // namespace tessera

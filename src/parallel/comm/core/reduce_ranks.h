#pragma once

#include "parallel/comm/core/communicator.h"

namespace tessera {

// out[i] <- reduction over k of src[k][i], in the order of k; `count` sources of `numel` elements.
// Sums of halves add up in fp32 and are rounded once. A NaN in any source gives NaN. out may be one
// of the sources. out_dtype is dtype, or fp32 for a sum of bf16/fp16.
void reduce_ranks(void* out, at::ScalarType out_dtype, const void* const* src, at::ScalarType dtype,
                  int count, int64_t numel, ReduceOp op);

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// clang-format off
// Matrix products at the borders of tensor parallelism, with the communication that they border on
// (Wang et al. 2023; Megatron-LM's overlapped linears). With TpOverlap::kRing it runs in chunks
// around a ring, a rank's tokens each, beside the product of the chunk before. Rank r of T:
//
//   gather, then product            product, then sum
//   step  sends   product           step  receives        product      adds
//   0     r       r                 0                     r - 1
//   1     r - 1   r - 1             1     sum of r - 2    r - 2        -> goes on to r + 1
//   T-1           r + 1             T-1   sum of r        r            = the sum of its tokens
//
// Ring sums start at another rank for each chunk; halves travel in fp32 there, so that no hop
// rounds. On the CPU a send ends when its receiver has taken it, and until then it blocks whatever the
// rank starts in the tp group after it; so every second rank receives before it sends.
// clang-format on

// [N, O] = (gather of `own` [n, I]) times w [I, O]. `whole`, unless it is null, becomes the
// gathered [N, I].
at::Tensor gather_product(const at::Tensor& own, const at::Tensor& w, const TensorParallel& tp,
                          at::Tensor* whole = nullptr);

// [n, O] = sum over tp of x [N, I] times w [I, O]. Around a ring the sum is done on return. Error
// unless the ranks divide N.
PendingTensor start_product_sum(const at::Tensor& x, const at::Tensor& w, const TensorParallel& tp);

}  // namespace tessera

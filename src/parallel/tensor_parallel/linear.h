#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "parallel/comm/communicator.h"

namespace tessera {

// A weight as these layers take it: value and gradient slot, both views of a flat bucket. The
// gradient is added straight into the slot, so autograd never sees the weight and no copy is made.
// A frozen weight has no gradient. A weight that is kept in fp32 beside halves computes in fp32:
// the input is converted, and so is the result.
struct Weight {
  at::Tensor value;
  at::Tensor grad;  // of value's dtype, or undefined
};

// Makes a layer's input again, bit for bit, so that it need not be kept for the backward pass
// (selective recompute). Empty: the input is kept.
using Recipe = std::function<at::Tensor()>;

// The conjugate pair of Megatron-LM (Shoeybi et al. 2019): a column-parallel layer whose input is
// the same on every rank of `tp`, then a row-parallel one whose output is again.

// y [N, O/T] = x [N, I] W^T with W [O/T, I], this rank's rows. Backward: dx is summed over tp while
// the weight's gradient is computed.
at::Tensor column_parallel_linear(const at::Tensor& x, const Weight& weight, Communicator& tp,
                                  Recipe recipe = {});

// y [N, O] = sum over tp of x [N, I/T] W^T with W [O, I/T], this rank's columns.
at::Tensor row_parallel_linear(const at::Tensor& x, const Weight& weight, Communicator& tp,
                               Recipe recipe = {});

}  // namespace tessera

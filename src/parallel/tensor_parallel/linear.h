#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"

namespace tessera {

// A weight as these layers take it: value and gradient slot, both views of a flat bucket. The
// gradient is added straight into the slot, so autograd never sees the weight and no copy is made.
struct Weight {
  at::Tensor value;
  at::Tensor grad;
};

// The conjugate pair of Megatron-LM (Shoeybi et al. 2019): a column-parallel layer whose input is
// the same on every rank of `tp`, then a row-parallel one whose output is again.

// y [N, O/T] = x [N, I] W^T with W [O/T, I], this rank's rows. Backward: dx is summed over tp while
// the weight's gradient is computed.
at::Tensor column_parallel_linear(const at::Tensor& x, const Weight& weight, Communicator& tp);

// y [N, O] = sum over tp of x [N, I/T] W^T with W [O, I/T], this rank's columns.
at::Tensor row_parallel_linear(const at::Tensor& x, const Weight& weight, Communicator& tp);

}  // namespace tessera

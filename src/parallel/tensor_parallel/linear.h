#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "parallel/parameter.h"
#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// A weight as these layers take it: value and gradient slot, both views of a flat bucket. The
// gradient is added straight into the slot, so autograd never sees the weight and no copy is made.
// A frozen weight has no gradient. A weight that is kept in fp32 beside halves computes in fp32:
// the input is converted, and so is the result.
struct Weight {
  at::Tensor value;
  at::Tensor grad;  // of value's dtype, or undefined
};

inline Weight weight_of(const Parameter& parameter) {
  return {parameter.value, parameter.grad};
}
inline Weight weight_of(const ParameterPack& pack) {
  return {pack.value, pack.grad};
}

// Makes a layer's input again, bit for bit, so that it need not be kept for the backward pass
// (selective recompute). Empty: the input is kept.
using Recipe = std::function<at::Tensor()>;

// The conjugate pair of Megatron-LM (Shoeybi et al. 2019): a column-parallel layer whose input is
// the same on every rank of `tp`, then a row-parallel one whose output is again. N counts tokens;
// under sequence parallelism (Korthikanti et al. 2022) what lies outside of the pair has this
// rank's n = N / T of them, else n = N. A bias whose value is undefined is none.

// y [N, O/T] = x [n, I], gathered, times W^T, + bias, with W [O/T, I] and bias [O/T] this rank's
// rows (of several layers in one: of their packs). Backward: dx is summed over tp. Under sequence
// parallelism x is gathered again for the weight's gradient, not kept.
at::Tensor column_parallel_linear(const at::Tensor& x, const Weight& weight,
                                  const TensorParallel& tp, Recipe recipe = {},
                                  const Weight& bias = {});

// y [n, O] = sum over tp of x [N, I/T] W^T, + bias, with W [O, I/T] this rank's columns. bias [O]
// is whole on every rank and added once, to the sum. Its gradient is whole too, but under sequence
// parallelism that of this rank's tokens (ParameterSpec::partial_gradient).
at::Tensor row_parallel_linear(const at::Tensor& x, const Weight& weight, const TensorParallel& tp,
                               Recipe recipe = {}, const Weight& bias = {});

}  // namespace tessera

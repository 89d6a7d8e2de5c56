#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// The last projection and the loss in one: sum over tokens of weights[n] * cross_entropy(h[n] W^T).
//
// h [N, H] is the same on every rank of tp; weight.value [V/T, H] holds rows vocab_start...;
// targets int64 [N] and weights fp32 or fp64 [N] are the same on all. Logits are never gathered:
// maximum, sum of exponentials and target logit are reduced over tp ([N] numbers each; Shoeybi et
// al. 2019). Since the loss is the end of the chain, gradients are made in the forward pass, a
// chunk of rows at a time, so that all logits never exist at once (as in Liger Kernel, Hsu et al.
// 2024): the weight's is added into weight.grad, h's waits for backward(). Under no-grad only the
// loss is computed. Returns a scalar of fp32 (fp64 for fp64 h), the same on every rank of tp. Loss
// and gradients are linear in the weights, which may carry a loss scale: what a half cannot hold
// then becomes infinity, nothing is clamped.
at::Tensor vocab_parallel_loss(const at::Tensor& h, const Weight& weight, int64_t vocab_start,
                               const at::Tensor& targets, const at::Tensor& weights,
                               Communicator& tp);

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// The last projection and the loss in one: sum over tokens of weights[n] * cross_entropy(h[n] W^T +
// b).
//
// h [n, H] is the same on every rank of tp (n = N), or under sequence parallelism this rank's
// n = N / T tokens; weight.value holds rows vocab_start... of the V of all ranks, whose parts
// differ by a row at most, bias (its value undefined: none) the same of b; targets int64 [N] and
// weights fp32 or fp64 [N] are the same on all. Logits are never gathered: maximum, sum of
// exponentials and target logit are reduced over tp ([N] numbers each; Shoeybi et al. 2019). Since
// the loss is the end of the chain, gradients are made in the forward pass, a chunk of tokens at a
// time, so that all logits never exist at once (as in Liger Kernel, Hsu et al. 2024): the weight's
// is added into weight.grad, h's waits for backward(). Under sequence parallelism a chunk takes as
// many tokens from each rank, and is all that is ever gathered of h. Under no-grad only the loss is
// computed. Returns a scalar of fp32 (fp64 for fp64 h), the same on every rank of tp. Loss and
// gradients are linear in the weights, which may carry a loss scale: what a half cannot hold then
// becomes infinity, nothing is clamped.
at::Tensor vocab_parallel_loss(const at::Tensor& h, const Weight& weight, int64_t vocab_start,
                               int64_t vocab, const at::Tensor& targets, const at::Tensor& weights,
                               const TensorParallel& tp, const Weight& bias = {});

// What the size of the loss's buffers depends on: the words of all ranks, the weight's columns and
// dtype, the tokens of a micro-batch, and whether the weight has a gradient.
struct LossSize {
  int64_t vocab;
  int64_t hidden;
  at::ScalarType dtype;
  int64_t tokens;
  bool trainable = true;
};

// Tokens whose logits exist at once: tp.loss_chunk(), at least one token of each rank that has
// some, at most all. If it is 0, 64 MiB of logits in multiples of 64 tokens, and for halves all
// tokens, so that the weight's gradient is rounded once.
int64_t loss_chunk_tokens(const LossSize& size, const TensorParallel& tp);

// The most bytes that vocab_parallel_loss() takes beside h and its gradient: logits, a chunk of h
// and of its gradient, and for halves in several chunks the fp32 sum that their weight's gradient
// is rounded from, with the chunk's logits and h in fp32.
int64_t loss_buffer_bytes(const LossSize& size, const TensorParallel& tp);

}  // namespace tessera

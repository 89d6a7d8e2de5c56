#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/executor/stage.h"
#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// The last layer of a model that predicts one of V words or classes for each of the micro-batch's
// N = B*S targets: logits = y W^T + b, then cross-entropy. Logits of all words or of all targets
// never exist at once (vocab_cross_entropy.h).
//
// y [n, H] is what the layer before it gives: n = N, the same on every rank of tp, or under
// sequence parallelism this rank's n = N / T rows. `head` [V, H] is split by rows over tp, unevenly
// where tp does not divide V, and so is `bias` [V] (its value undefined: none); their gradients are
// added into the slots in the forward pass. batch.targets int64 [B, S] are below V, batch.weights
// [B, S] count each. All ranks of tp take part in every call but vocab_head_bytes().

// The sum over targets of weight * cross_entropy: a scalar, fp32 (fp64 for fp64 y), the same on
// every rank of tp, and linear in the weights.
at::Tensor vocab_head_loss(const at::Tensor& y, const Parameter& head, const MicroBatch& batch,
                           const TensorParallel& tp, const Weight& bias = {});

// {that loss}; without gradients, as in evaluation, also what was predicted right: the scalars of
// scores.h, kMostScores of them.
TensorList vocab_head_scores(const at::Tensor& y, const Parameter& head, const MicroBatch& batch,
                             const TensorParallel& tp, const Weight& bias = {});

// The most bytes that either takes on this rank beside y and its gradient for N = `tokens` targets
// (Stage::logits_bytes()); by arithmetic alone.
int64_t vocab_head_bytes(const Parameter& head, int64_t tokens, const TensorParallel& tp);

}  // namespace tessera

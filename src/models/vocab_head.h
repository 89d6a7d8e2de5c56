#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/executor/stage.h"
#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// The last layer of a model that predicts one of many words or classes: `head` [V, H] is split by
// rows over tp, and so is `bias` [V] (its value undefined: none). y and the memory are those of
// vocab_parallel_loss().

// The sum of the micro-batch's weighted losses.
at::Tensor vocab_head_loss(const at::Tensor& y, const Parameter& head, const MicroBatch& batch,
                           const TensorParallel& tp, const Weight& bias = {});

// The same, and in evaluation what was predicted right (scores.h).
TensorList vocab_head_scores(const at::Tensor& y, const Parameter& head, const MicroBatch& batch,
                             const TensorParallel& tp, const Weight& bias = {});

// For Stage::logits_bytes().
int64_t vocab_head_bytes(const Parameter& head, int64_t tokens, const TensorParallel& tp);

}  // namespace tessera

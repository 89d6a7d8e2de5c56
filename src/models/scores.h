#pragma once

#include "parallel/executor/stage.h"

namespace tessera {

// What the last stage of a model that predicts returns in evaluation: a scalar each, of this rank's
// rows, the same on all ranks of a tp group.
inline constexpr size_t kLossSum = 0;       // as in training
inline constexpr size_t kRightTargets = 1;  // targets that are the prediction, of those that count
inline constexpr size_t kRightSamples = 2;  // samples whose counted targets are all right
inline constexpr size_t kMostScores = 3;

// All three, int64 but for the loss (a scalar, handed on as it is). predictions int64 [B*S]: of
// each of batch.targets [B, S] the place of the largest logit. The decoder sees the true tokens
// before each target, so by induction a sample is all right exactly if greedy decoding would give
// its targets.
TensorList scores(const at::Tensor& loss, const at::Tensor& predictions, const MicroBatch& batch);

}  // namespace tessera

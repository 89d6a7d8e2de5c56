#include "models/scores.h"

#include <ATen/ATen.h>

namespace tessera {

TensorList scores(const at::Tensor& loss, const at::Tensor& predictions, const MicroBatch& batch) {
  const at::Tensor counts = batch.weights != 0;  // [B, S]
  const at::Tensor right = predictions.view_as(batch.targets) == batch.targets;
  const at::Tensor all_right =
      at::logical_or(right, counts.logical_not()).all(1).logical_and(counts.any(1));
  return {loss, right.logical_and(counts).sum(), all_right.sum()};
}

}  // namespace tessera

#include "optim/grad_norm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/kernels.h"

namespace tessera {

double local_squared_grad_norm(const std::vector<FlatBucket*>& buckets, const Mesh& mesh) {
  double sum = 0.0;
  if (mesh.dp_replicate_rank() != 0) return sum;  // copies of what replica 0 counts
  for (FlatBucket* bucket : buckets) {
    if (!bucket->trainable()) continue;
    for (const auto& segment : bucket->segments()) {
      if (!segment.parameter->spec.tp.is_sharded() && mesh.tp_rank() != 0) continue;
      sum += kernels::sum_squares(
          bucket->grad().narrow(0, segment.shard_offset, segment.slice.numel()));
    }
  }
  return sum;
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace tessera

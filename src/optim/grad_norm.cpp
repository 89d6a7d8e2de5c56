#include "optim/grad_norm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/kernels.h"

namespace tessera {
namespace {

double squared_norm(FlatBucket& bucket, const Mesh& mesh) {
  double sum = 0.0;
  if (!bucket.trainable()) return sum;
  for (const Segment& segment : bucket.segments()) {
    if (!segment.parameter->spec.tp.is_sharded() && mesh.tp_rank() != 0) continue;
    sum +=
        kernels::sum_squares(bucket.grad().narrow(0, segment.shard_offset, segment.slice.numel()));
  }
  return sum;
}

}  // namespace

std::vector<double> local_squared_grad_norms(const std::vector<FlatBucket*>& buckets,
                                             const Mesh& mesh) {
  std::vector<double> sums(buckets.size(), 0.0);
  if (mesh.dp_replicate_rank() != 0) return sums;  // copies of what replica 0 counts
  for (size_t i = 0; i < buckets.size(); ++i) sums[i] = squared_norm(*buckets[i], mesh);
  return sums;
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace tessera

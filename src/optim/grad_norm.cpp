#include "optim/grad_norm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/kernels.h"

namespace tessera {
namespace {

void add_squared_norm(FlatBucket& bucket, const Mesh& mesh, const at::Tensor& sum) {
  if (!bucket.trainable()) return;
  for (const Segment& segment : bucket.segments()) {
    if (segment.parameter->spec.tp.copy(mesh.tp_rank()) != 0) continue;
    kernels::add_sum_squares(bucket.grad().narrow(0, segment.shard_offset, segment.slice.numel()),
                             sum);
  }
}

// Where gradients lie: all buckets' alike.
at::Device gradient_device(const std::vector<FlatBucket*>& buckets) {
  for (const FlatBucket* bucket : buckets)
    if (bucket->trainable()) return bucket->grad().device();
  return at::kCPU;
}

}  // namespace

at::Tensor local_squared_grad_norms(const std::vector<FlatBucket*>& buckets, const Mesh& mesh) {
  const auto count = static_cast<int64_t>(buckets.size());
  const at::Tensor sums =
      at::zeros({count}, at::TensorOptions(gradient_device(buckets)).dtype(at::kDouble));
  if (mesh.dp_replicate_rank() != 0) return sums;  // copies of what replica 0 counts
  for (int64_t i = 0; i < count; ++i)
    add_squared_norm(*buckets[static_cast<size_t>(i)], mesh, sums.narrow(0, i, 1));
  return sums;
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace tessera

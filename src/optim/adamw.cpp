#include "optim/adamw.h"

#include <ATen/ATen.h>

#include "kernels/kernels.h"

namespace tessera {

void adamw_step(const std::vector<FlatBucket*>& buckets, const AdamWConfig& config, double lr,
                double grad_scale, int64_t step) {
  kernels::AdamWScalars scalars{lr, config.beta1, config.beta2, config.eps, 0.0, step, grad_scale};
  for (FlatBucket* bucket : buckets) {
    if (!bucket->trainable()) continue;
    const MomentUse moments = bucket->use_moments();
    for (const auto& segment : bucket->update_segments()) {
      scalars.weight_decay = segment.parameter->spec.decay ? config.weight_decay : 0.0;
      const auto part = [&](const at::Tensor& state) {
        return state.narrow(0, segment.shard_offset, segment.slice.numel());
      };
      kernels::adamw(part(bucket->master()), part(bucket->grad()), part(bucket->moments()[0]),
                     part(bucket->moments()[1]), scalars);
    }
  }
}

}  // namespace tessera

#pragma once

#include <cstdint>
#include <vector>

#include "optim/optimizer_config.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// One AdamW update of every shard: fp32 master, gradient and moments, decay only where the
// parameter's spec says so (matrices). `step` counts from 1. Gradients are multiplied by
// grad_scale.
void adamw_step(const std::vector<FlatBucket*>& buckets, const AdamWConfig& config, double lr,
                double grad_scale, int64_t step);

}  // namespace tessera

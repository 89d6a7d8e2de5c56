#pragma once

#include <vector>

#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// This rank's part of the squared global gradient norm, in fp64: summed over all ranks of the mesh
// it is the whole. A parameter that tensor parallelism replicates is counted by tp rank 0 alone,
// padding never (hybrid TP x ZeRO norm; Megatron-LM's rule without its attributes).
double local_squared_grad_norm(const std::vector<FlatBucket*>& buckets, const Mesh& mesh);

// The factor that clips a gradient of norm `norm` to max_norm (torch.nn.utils.clip_grad_norm_):
// min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0 (off).
double clip_factor(double norm, double max_norm);

}  // namespace tessera

#pragma once

#include <vector>

#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// This rank's part of each bucket's squared gradient norm, fp64 [buckets] where the gradients lie
// (the host does not wait): summed over all ranks of the mesh they are the whole. What several
// ranks hold alike (a parameter or a part that tensor parallelism replicates, the copies of
// dp_replicate) is counted by the first of them alone, padding and frozen parameters never (hybrid
// TP x ZeRO norm; Megatron-LM's rule without its attributes).
at::Tensor local_squared_grad_norms(const std::vector<FlatBucket*>& buckets, const Mesh& mesh);

// The factor that clips a gradient of norm `norm` to max_norm (torch.nn.utils.clip_grad_norm_):
// min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0 (off).
double clip_factor(double norm, double max_norm);

}  // namespace tessera

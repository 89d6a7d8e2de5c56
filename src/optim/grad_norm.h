#pragma once

#include <vector>

#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// This rank's part of each bucket's squared gradient norm, fp64 [buckets] on the device of the
// gradients (the host does not wait). The sum of the parts of all ranks of the mesh is the squared
// norm. So where several ranks hold the same elements (a parameter or a part of one that tensor
// parallelism replicates, the copies of dp_replicate), only the first of them counts them; padding
// and frozen parameters are never counted (hybrid TP x ZeRO norm; Megatron-LM's rule without its
// attributes).
at::Tensor local_squared_grad_norms(const std::vector<FlatBucket*>& buckets, const Mesh& mesh);

// The factor that clips a gradient of norm `norm` to max_norm (torch.nn.utils.clip_grad_norm_):
// min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0 (off).
double clip_factor(double norm, double max_norm);

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/rms_norm.h"
#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// LayerNorm (Ba et al. 2016) at a branch of the residual stream: x [N, H] goes on as `residual`,
// and y = (x - mean) / sqrt(var + eps) * w + b feeds the layer. Backward joins both gradients. w
// and b [H] are the same on every rank of tp, and their gradients cover this rank's rows.
// Statistics and sums are fp32 inside (fp64 for fp64). make_y as in NormResult.
NormResult layer_norm(const at::Tensor& x, const Weight& weight, const Weight& bias, double eps);

// The same for x + delta.
NormResult add_layer_norm(const at::Tensor& x, const at::Tensor& delta, const Weight& weight,
                          const Weight& bias, double eps);

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "parallel/tensor_parallel/linear.h"

namespace tessera {

struct NormResult {
  at::Tensor residual;  // the normalised input, to be added to later
  at::Tensor y;         // what the next layer reads
  Recipe make_y;        // y again, from what the norm keeps anyway
};

// RMSNorm at a branch of the residual stream: x [N, H] goes on as `residual`, and y = rms_norm(x) *
// w feeds the layer. Backward joins both gradients in one pass over the rows. w [H] is the same on
// every rank of tp and so is its gradient. make_y may run while the stage's parameters are
// gathered.
NormResult rms_norm(const at::Tensor& x, const Weight& weight, double eps);

// The same for x + delta: the addition that ends the layer before is part of the same pass.
NormResult add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const Weight& weight,
                        double eps);

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// silu(gate) * up (Shazeer 2020); gate_up [N, 2F] holds gate, then up -> [N, F].
at::Tensor swiglu(const at::Tensor& gate_up);

// Makes the product again from gate_up, which swiglu() keeps anyway.
Recipe swiglu_recipe(const at::Tensor& gate_up);

}  // namespace tessera

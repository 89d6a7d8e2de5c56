#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

// silu(gate) * up (Shazeer 2020); gate_up [N, 2F] holds gate, then up -> [N, F].
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace tessera

#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// What a run decides about a model's stages besides its sizes.
struct ModelOptions {
  uint64_t seed = 0;                        // names the dropout masks
  at::ScalarType activations = at::kFloat;  // what the embedding hands on
  at::ScalarType buffers = at::kFloat;      // of the rotary tables: fp32 or bf16
  // The outputs of norms and SwiGLU, which linear layers need for their weights' gradients, are
  // made again in backward; attention and matrix products are kept (Korthikanti et al. 2022).
  bool selective_recompute = false;
  TensorParallelOptions tensor_parallel = {};
};

}  // namespace tessera

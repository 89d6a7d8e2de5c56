#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "parallel/tensor_parallel/linear.h"
#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// What a run decides about a model's stages besides its sizes.
struct ModelOptions {
  uint64_t seed = 0;                        // names the dropout masks
  at::ScalarType activations = at::kFloat;  // what the embedding hands on
  at::ScalarType buffers = at::kFloat;      // of the rotary tables: fp32 or bf16
  // The outputs of norms and activations, which linear layers need for their weights' gradients,
  // are made again in backward; attention and matrix products are kept (Korthikanti et al. 2022).
  bool selective_recompute = false;
  TensorParallelOptions tensor_parallel = {};

  // How a linear layer gets its input in backward: by the recipe, or (empty) it is kept.
  Recipe recipe_or_kept(const Recipe& recipe) const {
    return selective_recompute ? recipe : Recipe();
  }
};

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/layers/rope_scaling.h"

namespace tessera {

// Rotary tables of positions 0 .. seq_len-1, [S, D/2] in fp32 or bf16 (Su et al. 2021), with their
// frequencies stretched as `scaling` says (llama3: Grattafiori et al. 2024).
struct RopeTable {
  RopeTable(int64_t seq_len, int64_t head_dim, double theta, at::ScalarType dtype,
            const RopeScaling& scaling = {}, at::Device device = at::kCPU);

  at::Tensor cos;
  at::Tensor sin;
};

// Turns each of the first `heads` heads of x [B*S, columns] by its row's position; head h lies in
// columns [h * D, (h + 1) * D), and the others stay. In place: x is consumed, and what is returned
// takes its place. D is even; S is the table's.
at::Tensor rotate(const at::Tensor& x, int64_t heads, int64_t head_dim, const RopeTable& rope);

}  // namespace tessera

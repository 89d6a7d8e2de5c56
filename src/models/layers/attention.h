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
  // For models whose positions come from elsewhere.
  static RopeTable no_rotation(int64_t seq_len, int64_t head_dim, at::Device device);

  at::Tensor cos;
  at::Tensor sin;
};

struct AttentionShape {
  int64_t batch;
  int64_t seq_len;
  int64_t heads;     // of this rank
  int64_t kv_heads;  // of this rank; divides heads
  int64_t head_dim;
  int64_t window = 0;  // keys that a query sees, its own included; 0: all before it
};

// Causal grouped-query attention with rotary positions (Ainslie et al. 2023), over a sliding window
// of keys where the shape has one (Beltagy et al. 2020, Jiang et al. 2023). qkv [B*S, (heads + 2
// kv_heads) * D] holds q, k, v heads side by side -> [B*S, heads * D]. qkv is consumed: q and k are
// rotated in place, so the caller must not read it again.
at::Tensor causal_attention(const at::Tensor& qkv, const AttentionShape& shape,
                            const RopeTable& rope);

// The same by LibTorch's operator with its own backward pass: causal_attention() of a GPU's
// tensors, for which the operator chooses among fused kernels (flash attention for halves).
at::Tensor causal_attention_by_operator(const at::Tensor& qkv, const AttentionShape& shape,
                                        const RopeTable& rope);

}  // namespace tessera

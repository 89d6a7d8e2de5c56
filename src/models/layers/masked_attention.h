#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/layers/blocked_attention.h"

namespace tessera {

// Sizes of an attention; heads are this rank's.
struct HeadShape {
  int64_t batch;
  int64_t heads;
  int64_t head_dim;
};

// softmax(q k^T / sqrt(D)) v, multi-head (Vaswani et al. 2017), without positions of its own.
//
// Self-attention: qkv [B*S, 3 * heads * D] holds the heads of q, of k and of v side by side ->
// [B*S, heads * D].
at::Tensor self_attention(const at::Tensor& qkv, const HeadShape& shape, const AttentionMask& mask);

// Queries of one sequence, keys and values of another: q [B*S, heads * D], kv [B*S', 2 * heads * D]
// -> [B*S, heads * D].
at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& kv, const HeadShape& shape,
                           const AttentionMask& mask);

// The same with dropout on the probabilities where it drops, and else those.
at::Tensor self_attention(const at::Tensor& qkv, const HeadShape& shape, const AttentionMask& mask,
                          const AttentionDropout& dropout);
at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& kv, const HeadShape& shape,
                           const AttentionMask& mask, const AttentionDropout& dropout);

}  // namespace tessera

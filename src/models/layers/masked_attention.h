#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera {

// Sizes of an attention; heads are this rank's.
struct HeadShape {
  int64_t batch;
  int64_t heads;
  int64_t head_dim;
};

// Which keys a query reads: all of its sample's, or fewer. One of the two at most: where padding
// ends the rows, causal queries before it never see it.
struct AttentionMask {
  bool causal = false;  // query i reads keys 0 .. i
  at::Tensor
      key_lengths;  // int64 [B], each at least 1: keys from there on are padding; undefined: none
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

}  // namespace tessera

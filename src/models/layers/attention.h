#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/attention_options.h"

namespace tessera {

// softmax(q k^T / sqrt(D)) v (Vaswani et al. 2017) with grouped queries (Ainslie et al. 2023), over
// a sliding window of keys where the options have one (Beltagy et al. 2020, Jiang et al. 2023). It
// knows no positions: rotate() comes before it. Error for columns or options that do not go
// together.
//
// qkv [B*S, (heads + 2 kv_heads) * D] holds the heads of q, of k and of v side by side ->
// [B*S, heads * D].
at::Tensor self_attention(const at::Tensor& qkv, const AttentionShape& shape,
                          const AttentionOptions& options);

// Queries of one sequence, keys and values of another: q [B*S, heads * D],
// kv [B*S', 2 * kv_heads * D] -> [B*S, heads * D].
at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& kv, const AttentionShape& shape,
                           const AttentionOptions& options);

}  // namespace tessera

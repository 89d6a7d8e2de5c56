#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/layers/attention_mask.h"
#include "models/layers/dropout.h"

namespace tessera {

// What decides which attention probabilities are dropped.
struct AttentionDropout {
  DropoutPlace place;
  int64_t first_head;  // this rank's first query head among those of all tp ranks
  at::Tensor rows;     // MicroBatch::rows, int64 [B]

  bool drops() const { return place.drops(rows); }
};

// The heads of an attention, views of any strides. heads / kv_heads query heads read one kv head.
struct AttentionHeads {
  at::Tensor q;  // [B, heads, S, D]
  at::Tensor k;  // [B, kv_heads, S', D]
  at::Tensor v;
};

struct BlockedAttention {
  AttentionMask mask;
  int64_t window;  // of a causal mask: keys that a query sees, its own included; 0: all before it
  AttentionDropout dropout;
};

// softmax(q k^T / sqrt(D)) v with dropout on the probabilities, 1 / (1 - p) included; p may be 0.
// `out` [B, heads, S, D] is written; returns the logarithms of the rows' sums, [B, heads, S].
//
// LibTorch's attention draws its own masks, so this one is ours: a block of query rows of the heads
// that share a kv head at a time, whose probabilities exist only then and are computed again in the
// backward pass (Rabe & Staats 2021, Dao et al. 2022). Inside all is fp32 (fp64 for fp64). Memory
// beside what goes in and out: kBlockBytes for each of at most two blocks and the fp32 heads of one
// group of one sample. CPU only.
at::Tensor blocked_attention(const AttentionHeads& in, const BlockedAttention& how,
                             const at::Tensor& out);

// `grads`, of the shapes of `in`, are written. out and logsumexp: what the forward pass made.
void blocked_attention_backward(const at::Tensor& dout, const AttentionHeads& in,
                                const BlockedAttention& how, const at::Tensor& out,
                                const at::Tensor& logsumexp, const AttentionHeads& grads);

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/layers/attention.h"
#include "models/layers/dropout.h"

namespace tessera {

// What decides which attention probabilities are dropped.
struct AttentionDropout {
  DropoutPlace place;
  int64_t first_head;  // this rank's first query head among those of all tp ranks
  at::Tensor rows;     // MicroBatch::rows, int64 [B]
};

// causal_attention() with dropout on the probabilities, 1 / (1 - p) included; p may be 0.
//
// LibTorch's attention draws its own masks, so this one is ours: a block of query rows of the heads
// that share a kv head at a time, whose probabilities exist only then and are computed again in the
// backward pass (Rabe & Staats 2021, Dao et al. 2022). Inside all is fp32 (fp64 for fp64). Memory
// beside the kept qkv, output and a number per row and head: kBlockBytes for each of at most two
// blocks and the fp32 heads of one group of one sample.
at::Tensor dropout_attention(const at::Tensor& qkv, const AttentionShape& shape,
                             const RopeTable& rope, const AttentionDropout& dropout);

// dropout_attention() where it drops: p above 0, in a micro-batch that names its rows; else
// causal_attention().
at::Tensor causal_attention(const at::Tensor& qkv, const AttentionShape& shape,
                            const RopeTable& rope, const AttentionDropout& dropout);

}  // namespace tessera

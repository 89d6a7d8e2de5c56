#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/attention_options.h"

namespace tessera {

// softmax(q k^T / sqrt(D)) v with dropout on the probabilities, 1 / (1 - p) included.
//
// LibTorch's attention draws its own masks, so this one is ours: a block of query rows of the heads
// that share a kv head at a time, whose probabilities exist only then and are computed again in the
// backward pass (Rabe & Staats 2021, Dao et al. 2022). Inside all is fp32 (fp64 for fp64). Memory
// beside what goes in and out: kBlockBytes for each of at most two blocks and the fp32 heads of one
// group of one sample. CPU only. Its blocks are no part of what it makes: outs and logsumexps have
// one tensor each, of all queries.
AttentionBlocks blocked_attention(const AttentionHeads& in, const AttentionOptions& options);

// `grads`, of the shapes of `in`, are written. dout [B, heads, S, D]; made: by the forward pass.
void blocked_attention_backward(const at::Tensor& dout, const AttentionHeads& in,
                                const AttentionOptions& options, const AttentionBlocks& made,
                                const AttentionHeads& grads);

}  // namespace tessera

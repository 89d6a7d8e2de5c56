#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/layers/attention_options.h"

namespace tessera {

// Attention by LibTorch's kernels, which drop nothing here: a kernel draws masks of its own.

// softmax(q k^T / sqrt(D)) v by the fused kernel of the CPU (Dao et al. 2022).
AttentionBlocks flash_attention(const AttentionHeads& in, const AttentionOptions& options);

// `grads`, of the shapes of `in`, are written. dout [B, heads, S, D]; made: by the forward pass.
void flash_attention_backward(const at::Tensor& dout, const AttentionHeads& in,
                              const AttentionOptions& options, const AttentionBlocks& made,
                              const AttentionHeads& grads);

// The same by LibTorch's operator with autograd's backward pass: it chooses among the kernels of
// the tensors' device (on a GPU flash attention for halves). The outputs of blocks of query rows,
// [B, heads, rows, D] each.
std::vector<at::Tensor> attention_by_operator(const AttentionHeads& in,
                                              const AttentionOptions& options);

}  // namespace tessera

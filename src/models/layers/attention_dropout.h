#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/attention.h"
#include "models/layers/blocked_attention.h"

namespace tessera {

// causal_attention() with dropout on the probabilities (blocked_attention.h); p may be 0.
at::Tensor dropout_attention(const at::Tensor& qkv, const AttentionShape& shape,
                             const RopeTable& rope, const AttentionDropout& dropout);

// dropout_attention() where it drops, else causal_attention().
at::Tensor causal_attention(const at::Tensor& qkv, const AttentionShape& shape,
                            const RopeTable& rope, const AttentionDropout& dropout);

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/attention_options.h"
#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// RMSNorm of every head of q and of k, before positions are rotated (Dehghani et al. 2023; Qwen3):
// qkv [B*S, (heads + 2 kv_heads) * D] -> a new tensor of that shape, v as it was. q_norm and k_norm
// [D] are the same for all heads; their gradients cover this rank's heads, so their sum over tp is
// the gradient (ParameterSpec::partial_gradient).
at::Tensor norm_heads(const at::Tensor& qkv, const AttentionShape& shape, const Weight& q_norm,
                      const Weight& k_norm, double eps);

}  // namespace tessera

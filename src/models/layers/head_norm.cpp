#include "models/layers/head_norm.h"

#include <ATen/ATen.h>

#include "models/layers/rms_norm.h"

namespace tessera {

at::Tensor norm_heads(const at::Tensor& qkv, const AttentionShape& shape, const Weight& q_norm,
                      const Weight& k_norm, double eps) {
  const int64_t d = shape.head_dim, rows = qkv.size(0);
  const auto normed = [&](int64_t first, int64_t heads, const Weight& weight) {
    const at::Tensor x = qkv.narrow(1, first * d, heads * d).contiguous().view({rows * heads, d});
    return rms_norm(x, weight, eps).y.view({rows, heads * d});
  };
  return at::cat({normed(0, shape.heads, q_norm), normed(shape.heads, shape.kv_heads, k_norm),
                  qkv.narrow(1, (shape.heads + shape.kv_heads) * d, shape.kv_heads * d)},
                 1);
}

}  // namespace tessera

#include "models/layers/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "kernels/kernels.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// q, k, v as [B, heads, S, D] views of the rows [B*S, (heads + 2 kv_heads) * D].
struct Heads {
  at::Tensor q, k, v;
};

Heads split_heads(const at::Tensor& qkv, const AttentionShape& s) {
  const at::Tensor rows =
      qkv.view({s.batch, s.seq_len, s.heads + 2 * s.kv_heads, s.head_dim}).transpose(1, 2);
  return {rows.narrow(1, 0, s.heads), rows.narrow(1, s.heads, s.kv_heads),
          rows.narrow(1, s.heads + s.kv_heads, s.kv_heads)};
}

// [B, kv_heads, S, D] -> [B, heads, S, D]: each kv head serves heads / kv_heads query heads.
at::Tensor repeat_groups(const at::Tensor& kv, int64_t groups) {
  if (groups == 1) return kv;
  return kv.unsqueeze(2)
      .expand({kv.size(0), kv.size(1), groups, kv.size(2), kv.size(3)})
      .reshape({kv.size(0), kv.size(1) * groups, kv.size(2), kv.size(3)});
}

// The transpose of repeat_groups(), into `out`.
void sum_groups(const at::Tensor& grad, int64_t groups, at::Tensor out) {
  if (groups == 1) {
    out.copy_(grad);
    return;
  }
  at::sum_out(out, grad.unflatten(1, {grad.size(1) / groups, groups}), 2);
}

struct CausalAttention : Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv,
                            const AttentionShape& shape, const RopeTable& rope) {
    const int64_t rotated = shape.heads + shape.kv_heads;
    kernels::rope_in_place(qkv, rotated, shape.head_dim, rope.cos, rope.sin, /*inverse=*/false);
    const auto [q, k, v] = split_heads(qkv, shape);
    const int64_t groups = shape.heads / shape.kv_heads;
    const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        q, repeat_groups(k, groups), repeat_groups(v, groups), /*dropout_p=*/0.0,
        /*is_causal=*/true);
    // Saved without a version check: the rotation above is the only write, and it is done.
    ctx->saved_data["qkv"] = qkv.detach();
    ctx->saved_data["out"] = out;
    ctx->saved_data["logsumexp"] = logsumexp;
    ctx->saved_data["cos"] = rope.cos;
    ctx->saved_data["sin"] = rope.sin;
    ctx->saved_data["shape"] = std::vector<int64_t>{shape.batch, shape.seq_len, shape.heads,
                                                    shape.kv_heads, shape.head_dim};
    return out.transpose(1, 2).reshape({qkv.size(0), shape.heads * shape.head_dim});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto sizes = ctx->saved_data["shape"].toIntVector();
    const AttentionShape shape{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
    const at::Tensor qkv = ctx->saved_data["qkv"].toTensor();
    const auto [q, k, v] = split_heads(qkv, shape);
    const int64_t groups = shape.heads / shape.kv_heads;
    const at::Tensor dout =
        grads[0].view({shape.batch, shape.seq_len, shape.heads, shape.head_dim}).transpose(1, 2);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dout, q, repeat_groups(k, groups), repeat_groups(v, groups),
        ctx->saved_data["out"].toTensor(), ctx->saved_data["logsumexp"].toTensor(),
        /*dropout_p=*/0.0, /*is_causal=*/true);
    at::Tensor dqkv = at::empty_like(qkv);
    const auto parts = split_heads(dqkv, shape);
    at::Tensor(parts.q).copy_(dq);
    sum_groups(dk, groups, parts.k);
    sum_groups(dv, groups, parts.v);
    kernels::rope_in_place(dqkv, shape.heads + shape.kv_heads, shape.head_dim,
                           ctx->saved_data["cos"].toTensor(), ctx->saved_data["sin"].toTensor(),
                           /*inverse=*/true);
    ctx->saved_data.clear();
    return {dqkv, {}, {}};
  }
};

// Rotates q and k in place, and their gradients back.
struct Rotate : Function<Rotate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv,
                            const AttentionShape& shape, const RopeTable& rope) {
    const int64_t rotated = shape.heads + shape.kv_heads;
    kernels::rope_in_place(qkv, rotated, shape.head_dim, rope.cos, rope.sin, /*inverse=*/false);
    ctx->mark_dirty({qkv});
    ctx->saved_data["rotated"] = rotated;
    ctx->saved_data["head_dim"] = shape.head_dim;
    ctx->saved_data["cos"] = rope.cos;
    ctx->saved_data["sin"] = rope.sin;
    return qkv;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dqkv = grads[0].clone(at::MemoryFormat::Contiguous);
    kernels::rope_in_place(dqkv, ctx->saved_data["rotated"].toInt(),
                           ctx->saved_data["head_dim"].toInt(), ctx->saved_data["cos"].toTensor(),
                           ctx->saved_data["sin"].toTensor(), /*inverse=*/true);
    return {dqkv, {}, {}};
  }
};

}  // namespace

// Made in single precision like the reference model's tables, so that exported models give its
// logits.
RopeTable::RopeTable(int64_t seq_len, int64_t head_dim, double theta, at::ScalarType dtype,
                     at::Device device) {
  const int64_t half = head_dim / 2;
  cos = at::empty({seq_len, half}, at::kFloat);
  sin = at::empty({seq_len, half}, at::kFloat);
  auto* c = cos.mutable_data_ptr<float>();
  auto* s = sin.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float frequency = 1.0F / static_cast<float>(std::pow(theta, exponent));
    for (int64_t p = 0; p < seq_len; ++p) {
      const float angle = static_cast<float>(p) * frequency;
      c[p * half + i] = std::cos(angle);
      s[p * half + i] = std::sin(angle);
    }
  }
  cos = cos.to(device, dtype);
  sin = sin.to(device, dtype);
}

at::Tensor causal_attention(const at::Tensor& qkv, const AttentionShape& shape,
                            const RopeTable& rope) {
  if (!qkv.is_cpu()) return causal_attention_by_operator(qkv, shape, rope);
  return CausalAttention::apply(qkv, shape, rope);
}

at::Tensor causal_attention_by_operator(const at::Tensor& qkv, const AttentionShape& shape,
                                        const RopeTable& rope) {
  const auto [q, k, v] = split_heads(Rotate::apply(qkv, shape, rope), shape);
  const at::Tensor out = at::scaled_dot_product_attention(
      q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true, /*scale=*/std::nullopt,
      /*enable_gqa=*/shape.heads != shape.kv_heads);
  return out.transpose(1, 2).reshape({qkv.size(0), shape.heads * shape.head_dim});
}

}  // namespace tessera

#include "models/layers/attention_dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/kernels.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The heads in the columns of qkv [B*S, (heads + 2 kv_heads) * D].
AttentionHeads heads_of(const at::Tensor& qkv, const AttentionShape& s) {
  const at::Tensor all = qkv.view({s.batch, s.seq_len, -1, s.head_dim}).transpose(1, 2);
  return {all.narrow(1, 0, s.heads), all.narrow(1, s.heads, s.kv_heads),
          all.narrow(1, s.heads + s.kv_heads, s.kv_heads)};
}

// The heads in the columns of an output [B*S, heads * D].
at::Tensor output_heads(const at::Tensor& out, const AttentionShape& s) {
  return out.view({s.batch, s.seq_len, s.heads, s.head_dim}).transpose(1, 2);
}

BlockedAttention how(const AttentionShape& shape, const AttentionDropout& dropout) {
  return {{.causal = true, .key_lengths = {}}, shape.window, dropout};
}

// Autograd can hold these only in parts.
struct Held : torch::CustomClassHolder {
  Held(const AttentionShape& s, const AttentionDropout& d) : shape(s), dropout(d) {}
  const AttentionShape shape;
  const AttentionDropout dropout;
};

struct DropoutAttention : Function<DropoutAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv,
                            const AttentionShape& shape, const RopeTable& rope,
                            const AttentionDropout& dropout) {
    kernels::rope_in_place(qkv, shape.heads + shape.kv_heads, shape.head_dim, rope.cos, rope.sin,
                           /*inverse=*/false);
    const at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.head_dim}, qkv.options());
    const at::Tensor logsumexp =
        blocked_attention(heads_of(qkv, shape), how(shape, dropout), output_heads(out, shape));
    // Saved without a version check: the rotation above is the only write, and it is done.
    ctx->saved_data["qkv"] = qkv.detach();
    ctx->saved_data["out"] = out.detach();
    ctx->saved_data["logsumexp"] = logsumexp;
    ctx->saved_data["cos"] = rope.cos;
    ctx->saved_data["sin"] = rope.sin;
    ctx->saved_data["held"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(shape, dropout));
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto& saved = ctx->saved_data;
    const auto capsule = saved["held"].toCapsule();
    const auto& held = static_cast<const Held&>(*capsule);
    const at::Tensor qkv = saved["qkv"].toTensor();
    const at::Tensor dqkv = at::empty_like(qkv);
    blocked_attention_backward(output_heads(grads[0].contiguous(), held.shape),
                               heads_of(qkv, held.shape), how(held.shape, held.dropout),
                               output_heads(saved["out"].toTensor(), held.shape),
                               saved["logsumexp"].toTensor(), heads_of(dqkv, held.shape));
    kernels::rope_in_place(dqkv, held.shape.heads + held.shape.kv_heads, held.shape.head_dim,
                           saved["cos"].toTensor(), saved["sin"].toTensor(), /*inverse=*/true);
    saved.clear();
    return {dqkv, {}, {}, {}};
  }
};

}  // namespace

at::Tensor dropout_attention(const at::Tensor& qkv, const AttentionShape& shape,
                             const RopeTable& rope, const AttentionDropout& dropout) {
  return DropoutAttention::apply(qkv, shape, rope, dropout);
}

at::Tensor causal_attention(const at::Tensor& qkv, const AttentionShape& shape,
                            const RopeTable& rope, const AttentionDropout& dropout) {
  return dropout.drops() ? dropout_attention(qkv, shape, rope, dropout)
                         : causal_attention(qkv, shape, rope);
}

}  // namespace tessera

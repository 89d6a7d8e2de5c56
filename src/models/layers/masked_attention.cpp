#include "models/layers/masked_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <optional>

#include "base/error.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Part `index` of the columns as [B, heads, S, D], a view.
at::Tensor heads_of(const at::Tensor& rows, const HeadShape& s, int64_t index) {
  const int64_t width = s.heads * s.head_dim;
  return rows.narrow(1, index * width, width)
      .unflatten(0, {s.batch, rows.size(0) / s.batch})
      .unflatten(2, {s.heads, s.head_dim})
      .transpose(1, 2);
}

// [B, 1, 1, S'] of 0 and -infinity, added to the scores.
std::optional<at::Tensor> scores_mask(const AttentionMask& mask, int64_t keys,
                                      at::ScalarType dtype) {
  if (!mask.key_lengths.defined()) return std::nullopt;
  const at::Tensor padding =
      at::arange(keys, mask.key_lengths.options()) >= mask.key_lengths.unsqueeze(1);
  return at::zeros(padding.sizes(), padding.options().dtype(dtype))
      .masked_fill_(padding, -std::numeric_limits<double>::infinity())
      .view({-1, 1, 1, keys});
}

// q's heads are the first of `rows`; k's and v's follow there, or lie in `kv`.
AttentionHeads heads_in(const at::Tensor& rows, const std::optional<at::Tensor>& kv,
                        const HeadShape& shape) {
  return {heads_of(rows, shape, 0), kv ? heads_of(*kv, shape, 0) : heads_of(rows, shape, 1),
          kv ? heads_of(*kv, shape, 1) : heads_of(rows, shape, 2)};
}

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

std::optional<at::Tensor> empty_like(const std::optional<at::Tensor>& tensor) {
  return tensor ? std::optional(at::empty_like(*tensor)) : std::nullopt;
}

struct Attention : Function<Attention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const std::optional<at::Tensor>& kv, const HeadShape& shape,
                            const AttentionMask& mask) {
    const auto [q, k, v] = heads_in(rows, kv, shape);
    const auto added = scores_mask(mask, k.size(2), rows.scalar_type());
    const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        q, k, v, /*dropout_p=*/0.0, mask.causal, added);
    ctx->save_for_backward({rows, kv.value_or(at::Tensor())});
    ctx->saved_data["out"] = out;
    ctx->saved_data["logsumexp"] = logsumexp;
    ctx->saved_data["mask"] = added;
    ctx->saved_data["causal"] = mask.causal;
    ctx->saved_data["shape"] = std::vector<int64_t>{shape.batch, shape.heads, shape.head_dim};
    return out.transpose(1, 2).reshape({rows.size(0), shape.heads * shape.head_dim});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto sizes = ctx->saved_data["shape"].toIntVector();
    const HeadShape shape{sizes[0], sizes[1], sizes[2]};
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& rows = saved[0];
    const auto kv = if_defined(saved[1]);
    const auto [q, k, v] = heads_in(rows, kv, shape);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_of(grads[0], shape, 0), q, k, v, ctx->saved_data["out"].toTensor(),
        ctx->saved_data["logsumexp"].toTensor(), /*dropout_p=*/0.0,
        ctx->saved_data["causal"].toBool(), ctx->saved_data["mask"].toOptional<at::Tensor>());
    const at::Tensor drows = at::empty_like(rows);
    const auto dkv = empty_like(kv);
    const AttentionHeads into = heads_in(drows, dkv, shape);
    into.q.copy_(dq);
    into.k.copy_(dk);
    into.v.copy_(dv);
    ctx->saved_data.clear();
    return {drows, dkv.value_or(at::Tensor()), {}, {}};
  }
};

// In the form that autograd can hold.
struct Held : torch::CustomClassHolder {
  Held(const HeadShape& s, BlockedAttention b) : shape(s), how(std::move(b)) {}
  const HeadShape shape;
  const BlockedAttention how;
};

struct DroppingAttention : Function<DroppingAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const std::optional<at::Tensor>& kv, const HeadShape& shape,
                            const BlockedAttention& how) {
    const at::Tensor out = at::empty({rows.size(0), shape.heads * shape.head_dim}, rows.options());
    const at::Tensor logsumexp =
        blocked_attention(heads_in(rows, kv, shape), how, heads_of(out, shape, 0));
    ctx->save_for_backward({rows, kv.value_or(at::Tensor())});
    ctx->saved_data["out"] = out.detach();
    ctx->saved_data["logsumexp"] = logsumexp;
    ctx->saved_data["held"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(shape, how));
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto capsule = ctx->saved_data["held"].toCapsule();
    const auto& held = static_cast<const Held&>(*capsule);
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& rows = saved[0];
    const auto kv = if_defined(saved[1]);
    const at::Tensor drows = at::empty_like(rows);
    const auto dkv = empty_like(kv);
    blocked_attention_backward(heads_of(grads[0], held.shape, 0), heads_in(rows, kv, held.shape),
                               held.how, heads_of(ctx->saved_data["out"].toTensor(), held.shape, 0),
                               ctx->saved_data["logsumexp"].toTensor(),
                               heads_in(drows, dkv, held.shape));
    ctx->saved_data.clear();
    return {drows, dkv.value_or(at::Tensor()), {}, {}};
  }
};

// Where the kernel is chosen by LibTorch and its backward pass is autograd's.
at::Tensor on_device(const at::Tensor& rows, const std::optional<at::Tensor>& kv,
                     const HeadShape& shape, const AttentionMask& mask) {
  const auto [q, k, v] = heads_in(rows, kv, shape);
  auto added = scores_mask(mask, k.size(2), rows.scalar_type());
  if (added)  // its kernels want every query's row, without a copy of it
    added = added->expand({-1, 1, rows.size(0) / shape.batch, -1});
  const at::Tensor out =
      at::scaled_dot_product_attention(q, k, v, added, /*dropout_p=*/0.0, mask.causal);
  return out.transpose(1, 2).reshape({rows.size(0), shape.heads * shape.head_dim});
}

void check_mask(const AttentionMask& mask) {
  if (mask.causal && mask.key_lengths.defined())
    fail("attention", "causal and key_lengths together; one of the two masks");
}

at::Tensor attention(const at::Tensor& rows, const std::optional<at::Tensor>& kv,
                     const HeadShape& shape, const AttentionMask& mask) {
  check_mask(mask);
  return rows.is_cpu() ? Attention::apply(rows, kv, shape, mask) : on_device(rows, kv, shape, mask);
}

at::Tensor dropping_attention(const at::Tensor& rows, const std::optional<at::Tensor>& kv,
                              const HeadShape& shape, const AttentionMask& mask,
                              const AttentionDropout& dropout) {
  check_mask(mask);
  return DroppingAttention::apply(rows, kv, shape, BlockedAttention{mask, 0, dropout});
}

void check_columns(const at::Tensor& rows, const HeadShape& shape, int64_t parts) {
  if (rows.size(1) != parts * shape.heads * shape.head_dim || rows.size(0) % shape.batch != 0)
    fail("attention", "rows [{}, {}]; {} samples of {} x {} heads of {} are asked for",
         rows.size(0), rows.size(1), shape.batch, parts, shape.heads, shape.head_dim);
}

}  // namespace

at::Tensor self_attention(const at::Tensor& qkv, const HeadShape& shape,
                          const AttentionMask& mask) {
  check_columns(qkv, shape, 3);
  return attention(qkv, std::nullopt, shape, mask);
}

at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& kv, const HeadShape& shape,
                           const AttentionMask& mask) {
  check_columns(q, shape, 1);
  check_columns(kv, shape, 2);
  return attention(q, kv, shape, mask);
}

at::Tensor self_attention(const at::Tensor& qkv, const HeadShape& shape, const AttentionMask& mask,
                          const AttentionDropout& dropout) {
  if (!dropout.drops()) return self_attention(qkv, shape, mask);
  check_columns(qkv, shape, 3);
  return dropping_attention(qkv, std::nullopt, shape, mask, dropout);
}

at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& kv, const HeadShape& shape,
                           const AttentionMask& mask, const AttentionDropout& dropout) {
  if (!dropout.drops()) return cross_attention(q, kv, shape, mask);
  check_columns(q, shape, 1);
  check_columns(kv, shape, 2);
  return dropping_attention(q, kv, shape, mask, dropout);
}

}  // namespace tessera

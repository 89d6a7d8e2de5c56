#include "models/layers/masked_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
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
  if (mask.causal) fail("attention", "causal and key_lengths together; one of the two masks");
  const at::Tensor padding =
      at::arange(keys, mask.key_lengths.options()) >= mask.key_lengths.unsqueeze(1);
  return at::zeros(padding.sizes(), padding.options().dtype(dtype))
      .masked_fill_(padding, -std::numeric_limits<double>::infinity())
      .view({-1, 1, 1, keys});
}

// q's heads are the first of `rows`; k's and v's follow there, or lie in `kv`.
struct Attention : Function<Attention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const std::optional<at::Tensor>& kv, const HeadShape& shape,
                            const AttentionMask& mask) {
    const at::Tensor q = heads_of(rows, shape, 0);
    const at::Tensor k = kv ? heads_of(*kv, shape, 0) : heads_of(rows, shape, 1);
    const at::Tensor v = kv ? heads_of(*kv, shape, 1) : heads_of(rows, shape, 2);
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
    const at::Tensor& kv = saved[1];
    const auto parts = [&](const at::Tensor& of_rows, const at::Tensor& of_kv) {
      const bool cross = of_kv.defined();
      return std::array{heads_of(of_rows, shape, 0),
                        cross ? heads_of(of_kv, shape, 0) : heads_of(of_rows, shape, 1),
                        cross ? heads_of(of_kv, shape, 1) : heads_of(of_rows, shape, 2)};
    };
    const auto [q, k, v] = parts(rows, kv);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_of(grads[0], shape, 0), q, k, v, ctx->saved_data["out"].toTensor(),
        ctx->saved_data["logsumexp"].toTensor(), /*dropout_p=*/0.0,
        ctx->saved_data["causal"].toBool(), ctx->saved_data["mask"].toOptional<at::Tensor>());
    const at::Tensor drows = at::empty_like(rows);
    const at::Tensor dkv = kv.defined() ? at::empty_like(kv) : at::Tensor();
    auto into = parts(drows, dkv);
    into[0].copy_(dq);
    into[1].copy_(dk);
    into[2].copy_(dv);
    ctx->saved_data.clear();
    return {drows, dkv, {}, {}};
  }
};

// Where the kernel is chosen by LibTorch and its backward pass is autograd's.
at::Tensor on_device(const at::Tensor& rows, const std::optional<at::Tensor>& kv,
                     const HeadShape& shape, const AttentionMask& mask) {
  const at::Tensor k = kv ? heads_of(*kv, shape, 0) : heads_of(rows, shape, 1);
  const at::Tensor v = kv ? heads_of(*kv, shape, 1) : heads_of(rows, shape, 2);
  auto added = scores_mask(mask, k.size(2), rows.scalar_type());
  if (added)  // its kernels want every query's row, without a copy of it
    added = added->expand({-1, 1, rows.size(0) / shape.batch, -1});
  const at::Tensor out = at::scaled_dot_product_attention(heads_of(rows, shape, 0), k, v, added,
                                                          /*dropout_p=*/0.0, mask.causal);
  return out.transpose(1, 2).reshape({rows.size(0), shape.heads * shape.head_dim});
}

at::Tensor attention(const at::Tensor& rows, const std::optional<at::Tensor>& kv,
                     const HeadShape& shape, const AttentionMask& mask) {
  return rows.is_cpu() ? Attention::apply(rows, kv, shape, mask) : on_device(rows, kv, shape, mask);
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

}  // namespace tessera

#include "models/layers/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

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

// Query rows that are computed together, and the keys that they see.
struct QueryBlock {
  int64_t begin, rows;
  int64_t first_key, keys;
  std::optional<at::Tensor> mask;  // [rows, keys], -inf where a key is not seen; none: causal
};

// With a window, blocks of few rows, so that a mask stays small and far keys cost nothing.
std::vector<QueryBlock> query_blocks(const AttentionShape& shape,
                                     const at::TensorOptions& options) {
  const int64_t length = shape.seq_len, window = shape.window;
  if (window == 0 || window >= length) return {{0, length, 0, length, std::nullopt}};
  constexpr int64_t kRows = 512;
  std::vector<QueryBlock> blocks;
  for (int64_t begin = 0; begin < length; begin += kRows) {
    const int64_t rows = std::min(kRows, length - begin);
    const int64_t first = std::max<int64_t>(0, begin - window + 1);
    QueryBlock block{begin, rows, first, begin + rows - first, std::nullopt};
    const QueryBlock* last = blocks.empty() ? nullptr : &blocks.back();
    if (last && last->rows == rows && last->keys == block.keys &&
        last->begin - last->first_key == begin - first) {
      block.mask = last->mask;
    } else {
      const auto ids = options.dtype(at::kLong);
      const at::Tensor query = at::arange(begin, begin + rows, ids).unsqueeze(1);
      const at::Tensor key = at::arange(first, begin + rows, ids).unsqueeze(0);
      const at::Tensor hidden = at::logical_or(key > query, key <= query - window);
      block.mask = at::zeros({rows, block.keys}, options)
                       .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

struct CausalAttention : Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv,
                            const AttentionShape& shape, const RopeTable& rope) {
    const int64_t rotated = shape.heads + shape.kv_heads;
    kernels::rope_in_place(qkv, rotated, shape.head_dim, rope.cos, rope.sin, /*inverse=*/false);
    const auto [q, k, v] = split_heads(qkv, shape);
    const int64_t groups = shape.heads / shape.kv_heads;
    const at::Tensor keys = repeat_groups(k, groups), values = repeat_groups(v, groups);
    std::vector<at::Tensor> outs, logsumexps;
    for (const QueryBlock& block : query_blocks(shape, qkv.options())) {
      auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          q.narrow(2, block.begin, block.rows), keys.narrow(2, block.first_key, block.keys),
          values.narrow(2, block.first_key, block.keys), /*dropout_p=*/0.0,
          /*is_causal=*/!block.mask, block.mask);
      outs.push_back(std::move(out));
      logsumexps.push_back(std::move(logsumexp));
    }
    // Saved without a version check: the rotation above is the only write, and it is done.
    ctx->saved_data["qkv"] = qkv.detach();
    ctx->saved_data["outs"] = outs;
    ctx->saved_data["logsumexps"] = logsumexps;
    ctx->saved_data["cos"] = rope.cos;
    ctx->saved_data["sin"] = rope.sin;
    ctx->saved_data["shape"] = std::vector<int64_t>{shape.batch,    shape.seq_len,  shape.heads,
                                                    shape.kv_heads, shape.head_dim, shape.window};
    const at::Tensor out = outs.size() == 1 ? outs[0] : at::cat(outs, 2);
    return out.transpose(1, 2).reshape({qkv.size(0), shape.heads * shape.head_dim});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto sizes = ctx->saved_data["shape"].toIntVector();
    const AttentionShape shape{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]};
    const at::Tensor qkv = ctx->saved_data["qkv"].toTensor();
    const auto outs = ctx->saved_data["outs"].toTensorVector();
    const auto logsumexps = ctx->saved_data["logsumexps"].toTensorVector();
    const auto [q, k, v] = split_heads(qkv, shape);
    const int64_t groups = shape.heads / shape.kv_heads;
    const at::Tensor keys = repeat_groups(k, groups), values = repeat_groups(v, groups);
    const at::Tensor dout =
        grads[0].view({shape.batch, shape.seq_len, shape.heads, shape.head_dim}).transpose(1, 2);
    at::Tensor dqkv = at::empty_like(qkv);
    const auto parts = split_heads(dqkv, shape);
    const auto blocks = query_blocks(shape, qkv.options());
    at::Tensor dkeys, dvalues;  // of all blocks
    for (size_t i = 0; i < blocks.size(); ++i) {
      const QueryBlock& block = blocks[i];
      const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          dout.narrow(2, block.begin, block.rows), q.narrow(2, block.begin, block.rows),
          keys.narrow(2, block.first_key, block.keys),
          values.narrow(2, block.first_key, block.keys), outs[i], logsumexps[i],
          /*dropout_p=*/0.0, /*is_causal=*/!block.mask, block.mask);
      parts.q.narrow(2, block.begin, block.rows).copy_(dq);
      if (blocks.size() == 1) {
        dkeys = dk;
        dvalues = dv;
        continue;
      }
      if (i == 0) {
        // A key's gradient comes from several blocks: it is rounded once, at the end.
        const auto wide = dk.options().dtype(kernels::wide_dtype(dk.scalar_type()));
        dkeys = at::zeros(keys.sizes(), wide);
        dvalues = at::zeros(values.sizes(), wide);
      }
      dkeys.narrow(2, block.first_key, block.keys).add_(dk);
      dvalues.narrow(2, block.first_key, block.keys).add_(dv);
    }
    sum_groups(dkeys.to(qkv.scalar_type()), groups, parts.k);
    sum_groups(dvalues.to(qkv.scalar_type()), groups, parts.v);
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

// transformers' arithmetic in fp32, so that tables agree to the last bits.
float stretched(float frequency, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  if (scaling.type == RopeScalingType::kNone) return frequency;
  if (scaling.type == RopeScalingType::kLinear) return frequency / factor;
  const auto original = static_cast<float>(scaling.original_max_position_embeddings);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto high = static_cast<float>(scaling.high_freq_factor);
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float kept = (original / wavelength - low) / (high - low);
  return (1 - kept) * frequency / factor + kept * frequency;
}

}  // namespace

// Made in single precision like the reference model's tables, so that exported models give its
// logits.
RopeTable::RopeTable(int64_t seq_len, int64_t head_dim, double theta, at::ScalarType dtype,
                     const RopeScaling& scaling, at::Device device) {
  const int64_t half = head_dim / 2;
  cos = at::empty({seq_len, half}, at::kFloat);
  sin = at::empty({seq_len, half}, at::kFloat);
  auto* c = cos.mutable_data_ptr<float>();
  auto* s = sin.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float frequency =
        stretched(1.0F / static_cast<float>(std::pow(theta, exponent)), scaling);
    for (int64_t p = 0; p < seq_len; ++p) {
      const float angle = static_cast<float>(p) * frequency;
      c[p * half + i] = std::cos(angle);
      s[p * half + i] = std::sin(angle);
    }
  }
  cos = cos.to(device, dtype);
  sin = sin.to(device, dtype);
}

RopeTable RopeTable::no_rotation(int64_t seq_len, int64_t head_dim, at::Device device) {
  RopeTable table(seq_len, head_dim, 1.0, at::kFloat, {}, device);
  table.cos.fill_(1.0);
  table.sin.zero_();
  return table;
}

at::Tensor causal_attention(const at::Tensor& qkv, const AttentionShape& shape,
                            const RopeTable& rope) {
  if (!qkv.is_cpu()) return causal_attention_by_operator(qkv, shape, rope);
  return CausalAttention::apply(qkv, shape, rope);
}

at::Tensor causal_attention_by_operator(const at::Tensor& qkv, const AttentionShape& shape,
                                        const RopeTable& rope) {
  const auto [q, k, v] = split_heads(Rotate::apply(qkv, shape, rope), shape);
  std::vector<at::Tensor> outs;
  for (const QueryBlock& block : query_blocks(shape, qkv.options()))
    outs.push_back(at::scaled_dot_product_attention(
        q.narrow(2, block.begin, block.rows), k.narrow(2, block.first_key, block.keys),
        v.narrow(2, block.first_key, block.keys), block.mask, /*dropout_p=*/0.0,
        /*is_causal=*/!block.mask, /*scale=*/std::nullopt,
        /*enable_gqa=*/shape.heads != shape.kv_heads));
  const at::Tensor out = outs.size() == 1 ? outs[0] : at::cat(outs, 2);
  return out.transpose(1, 2).reshape({qkv.size(0), shape.heads * shape.head_dim});
}

}  // namespace tessera

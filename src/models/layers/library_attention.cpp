#include "models/layers/library_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/kernels.h"

namespace tessera {
namespace {

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
  bool causal;                     // by the kernel's own mask
  std::optional<at::Tensor> mask;  // added to the scores: -inf where a key is not seen; none: 0

  at::Tensor queries_of(const at::Tensor& x) const { return x.narrow(2, begin, rows); }
  at::Tensor keys_of(const at::Tensor& x) const { return x.narrow(2, first_key, keys); }
};

// 0, and -infinity where `hidden` is true.
at::Tensor added_mask(const at::Tensor& hidden, at::ScalarType dtype) {
  return at::zeros(hidden.sizes(), hidden.options().dtype(dtype))
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

// [B, 1, 1, S'] of a mask of padding.
std::optional<at::Tensor> padding_mask(const at::Tensor& key_lengths, int64_t keys,
                                       at::ScalarType dtype) {
  if (!key_lengths.defined()) return std::nullopt;
  const at::Tensor hidden = at::arange(keys, key_lengths.options()) >= key_lengths.unsqueeze(1);
  return added_mask(hidden, dtype).view({-1, 1, 1, keys});
}

// A window's blocks have few rows, so that a mask stays small and far keys cost nothing.
std::vector<QueryBlock> window_blocks(const at::Tensor& q, int64_t window) {
  constexpr int64_t kRows = 512;
  const int64_t length = q.size(2);
  std::vector<QueryBlock> blocks;
  for (int64_t begin = 0; begin < length; begin += kRows) {
    const int64_t rows = std::min(kRows, length - begin);
    const int64_t first = std::max<int64_t>(0, begin - window + 1);
    QueryBlock block{begin, rows, first, begin + rows - first, /*causal=*/false, std::nullopt};
    const QueryBlock* last = blocks.empty() ? nullptr : &blocks.back();
    if (last && last->rows == rows && last->keys == block.keys &&
        last->begin - last->first_key == begin - first) {
      block.mask = last->mask;
    } else {
      const auto ids = q.options().dtype(at::kLong);
      const at::Tensor query = at::arange(begin, begin + rows, ids).unsqueeze(1);
      const at::Tensor key = at::arange(first, begin + rows, ids).unsqueeze(0);
      block.mask = added_mask(at::logical_or(key > query, key <= query - window), q.scalar_type());
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

std::vector<QueryBlock> query_blocks(const AttentionHeads& in, const AttentionOptions& options) {
  const int64_t queries = in.q.size(2), keys = in.k.size(2);
  if (options.window != 0 && options.window < queries) return window_blocks(in.q, options.window);
  return {{0, queries, 0, keys, options.causal,
           padding_mask(options.key_lengths, keys, in.q.scalar_type())}};
}

}  // namespace

AttentionBlocks flash_attention(const AttentionHeads& in, const AttentionOptions& options) {
  const int64_t groups = in.q.size(1) / in.k.size(1);
  const at::Tensor keys = repeat_groups(in.k, groups), values = repeat_groups(in.v, groups);
  AttentionBlocks made;
  for (const QueryBlock& block : query_blocks(in, options)) {
    auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        block.queries_of(in.q), block.keys_of(keys), block.keys_of(values), /*dropout_p=*/0.0,
        block.causal, block.mask);
    made.outs.push_back(std::move(out));
    made.logsumexps.push_back(std::move(logsumexp));
  }
  return made;
}

void flash_attention_backward(const at::Tensor& dout, const AttentionHeads& in,
                              const AttentionOptions& options, const AttentionBlocks& made,
                              const AttentionHeads& grads) {
  const int64_t groups = in.q.size(1) / in.k.size(1);
  const at::Tensor keys = repeat_groups(in.k, groups), values = repeat_groups(in.v, groups);
  const auto blocks = query_blocks(in, options);
  at::Tensor dkeys, dvalues;  // of all blocks
  for (size_t i = 0; i < blocks.size(); ++i) {
    const QueryBlock& block = blocks[i];
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        block.queries_of(dout), block.queries_of(in.q), block.keys_of(keys), block.keys_of(values),
        made.outs[i], made.logsumexps[i], /*dropout_p=*/0.0, block.causal, block.mask);
    block.queries_of(grads.q).copy_(dq);
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
    block.keys_of(dkeys).add_(dk);
    block.keys_of(dvalues).add_(dv);
  }
  sum_groups(dkeys.to(in.k.scalar_type()), groups, grads.k);
  sum_groups(dvalues.to(in.v.scalar_type()), groups, grads.v);
}

std::vector<at::Tensor> attention_by_operator(const AttentionHeads& in,
                                              const AttentionOptions& options) {
  std::vector<at::Tensor> outs;
  for (const QueryBlock& block : query_blocks(in, options)) {
    auto mask = block.mask;
    // Its kernels want every query's row of a mask, without a copy of it.
    if (mask && mask->dim() == 4) mask = mask->expand({-1, 1, block.rows, -1});
    outs.push_back(at::scaled_dot_product_attention(
        block.queries_of(in.q), block.keys_of(in.k), block.keys_of(in.v), mask, /*dropout_p=*/0.0,
        block.causal, /*scale=*/std::nullopt, /*enable_gqa=*/in.q.size(1) != in.k.size(1)));
  }
  return outs;
}

}  // namespace tessera

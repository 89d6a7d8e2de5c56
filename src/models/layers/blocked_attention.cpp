#include "models/layers/blocked_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "kernels/dropout.h"
#include "kernels/kernels.h"

namespace tessera {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;

// The query heads that read one kv head of one sample, and the masks' keys of these heads.
struct Group {
  int64_t sample;
  int64_t kv_head;
  std::vector<uint64_t> head_keys;
};

// The loop over samples, groups and blocks of query rows. Blocks depend on the model, the
// sequence and the query heads of a kv head alone, so neither the split into micro-batches nor, as
// long as no kv head is held by several ranks, tensor parallelism changes a bit.
class Blocks {
 public:
  Blocks(const AttentionHeads& in, const AttentionOptions& options)
      : options_(options),
        rate_(options.dropout ? options.dropout->place.p : 0.0),
        dtype_(kernels::wide_dtype(in.q.scalar_type())),
        batch_(in.q.size(0)),
        kv_heads_(in.k.size(1)),
        groups_(in.q.size(1) / kv_heads_),
        queries_(in.q.size(2)),
        keys_(in.k.size(2)),
        head_dim_(in.q.size(3)) {
    const int64_t row_bytes = groups_ * keys_ * static_cast<int64_t>(c10::elementSize(dtype_));
    rows_ = std::clamp<int64_t>(kBlockBytes / row_bytes, 1, queries_);
  }

  at::ScalarType dtype() const { return dtype_; }
  const kernels::DropoutRate& rate() const { return rate_; }
  at::Tensor buffer(const at::Tensor& like) const {
    return at::empty({groups_ * rows_ * keys_}, like.options().dtype(dtype_));
  }

  template <typename Body>
  void for_groups(Body body) const {
    for (int64_t sample = 0; sample < batch_; ++sample) {
      for (int64_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
        Group group{sample, kv_head, {}};
        for (int64_t i = 0; i < groups_; ++i)
          group.head_keys.push_back(head_key(kv_head * groups_ + i));
        body(group);
      }
    }
  }

  // body(rows of the block, begin, end, keys): queries [begin, end) read keys [0, keys), or fewer.
  template <typename Body>
  void for_blocks(const Group& group, Body body) const {
    const auto& dropout = options_.dropout;
    const int64_t row = dropout ? dropout->rows.const_data_ptr<int64_t>()[group.sample] : 0;
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim_));
    for (int64_t begin = 0; begin < queries_; begin += rows_) {
      const int64_t end = std::min(queries_, begin + rows_);
      const int64_t keys = options_.causal ? end : keys_of(group.sample);
      body(kernels::AttentionRows{.queries = end - begin,
                                  .first_query = begin,
                                  .causal = options_.causal,
                                  .scale = scale,
                                  .row = row,
                                  .head_keys = group.head_keys.data()},
           begin, end, keys);
    }
  }

  // With a sliding window: keys that queries [begin, end) no longer see score -inf, so their
  // probabilities and gradients are zero.
  void hide_old_keys(const at::Tensor& scores, int64_t begin, int64_t end) const {
    if (options_.window == 0 || end <= options_.window) return;
    const at::Tensor query = at::arange(begin, end).unsqueeze(1);
    const at::Tensor hidden = at::arange(end).unsqueeze(0) <= query - options_.window;
    scores.view({-1, end - begin, end})
        .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  }

  // The group's query heads of x [B, heads, S, ...].
  at::Tensor queries(const at::Tensor& x, const Group& g) const {
    return x.select(0, g.sample).narrow(0, g.kv_head * groups_, groups_);
  }
  // Its head of x [B, kv_heads, S', D].
  at::Tensor keys(const at::Tensor& x, const Group& g) const {
    return x.select(0, g.sample).select(0, g.kv_head);
  }
  at::Tensor wide_keys(const at::Tensor& x, const Group& g) const {
    return keys(x, g).to(dtype_).contiguous();
  }

  // Rows [begin, end) of x [heads, S, D] as [heads * rows, D] in the dtype of the computation.
  at::Tensor block(const at::Tensor& x, int64_t begin, int64_t end) const {
    return x.narrow(1, begin, end - begin).to(dtype_).reshape({-1, head_dim_});
  }
  void store_block(const at::Tensor& rows, at::Tensor x, int64_t begin, int64_t end) const {
    x.narrow(1, begin, end - begin).copy_(rows.view({-1, end - begin, head_dim_}));
  }

 private:
  int64_t keys_of(int64_t sample) const {
    const at::Tensor& lengths = options_.key_lengths;
    return lengths.defined() ? lengths.const_data_ptr<int64_t>()[sample] : keys_;
  }
  uint64_t head_key(int64_t head) const {
    if (!options_.dropout) return 0;  // no mask is made
    const AttentionDropout& dropout = *options_.dropout;
    const auto words =
        Philox(dropout.place.key).block(static_cast<uint64_t>(dropout.first_head + head));
    return words[0] | static_cast<uint64_t>(words[1]) << 32;
  }

  const AttentionOptions& options_;
  const kernels::DropoutRate rate_;
  const at::ScalarType dtype_;
  const int64_t batch_, kv_heads_, groups_, queries_, keys_, head_dim_;
  int64_t rows_;  // of a block
};

at::Tensor part_of(const at::Tensor& buffer, int64_t rows, int64_t columns) {
  return buffer.narrow(0, 0, rows * columns).view({rows, columns});
}

}  // namespace

AttentionBlocks blocked_attention(const AttentionHeads& in, const AttentionOptions& options) {
  const Blocks blocks(in, options);
  // As the rows of a linear layer's input lie, so that they are no copy.
  const at::Tensor out =
      at::empty({in.q.size(0), in.q.size(2), in.q.size(1), in.q.size(3)}, in.q.options())
          .transpose(1, 2);
  const at::Tensor logsumexp =
      at::empty({in.q.size(0), in.q.size(1), in.q.size(2)}, in.q.options().dtype(blocks.dtype()));
  const at::Tensor buffer = blocks.buffer(in.q);
  blocks.for_groups([&](const Group& group) {
    const at::Tensor q = blocks.queries(in.q, group), y = blocks.queries(out, group);
    const at::Tensor k = blocks.wide_keys(in.k, group), v = blocks.wide_keys(in.v, group);
    const at::Tensor sums = blocks.queries(logsumexp, group);
    blocks.for_blocks(group, [&](const auto& rows, int64_t begin, int64_t end, int64_t keys) {
      const at::Tensor queries = blocks.block(q, begin, end);
      at::Tensor scores = part_of(buffer, queries.size(0), keys);
      at::mm_out(scores, queries, k.narrow(0, 0, keys).t());
      blocks.hide_old_keys(scores, begin, end);
      const at::Tensor row_sums = at::empty({queries.size(0)}, sums.options());
      kernels::attention_softmax(scores, rows, blocks.rate(), row_sums);
      sums.narrow(1, begin, end - begin).copy_(row_sums.view({-1, end - begin}));
      blocks.store_block(at::mm(scores, v.narrow(0, 0, keys)), y, begin, end);
    });
  });
  return {{out}, {logsumexp}};
}

void blocked_attention_backward(const at::Tensor& dout, const AttentionHeads& in,
                                const AttentionOptions& options, const AttentionBlocks& made,
                                const AttentionHeads& grads) {
  const Blocks blocks(in, options);
  const at::Tensor buffer = blocks.buffer(in.q), grad_buffer = blocks.buffer(in.q);
  blocks.for_groups([&](const Group& group) {
    const at::Tensor q = blocks.queries(in.q, group), dq = blocks.queries(grads.q, group);
    const at::Tensor y = blocks.queries(made.outs[0], group), dy = blocks.queries(dout, group);
    const at::Tensor k = blocks.wide_keys(in.k, group), v = blocks.wide_keys(in.v, group);
    const at::Tensor dk = at::zeros_like(k), dv = at::zeros_like(v);
    const at::Tensor sums = blocks.queries(made.logsumexps[0], group);
    blocks.for_blocks(group, [&](const auto& rows, int64_t begin, int64_t end, int64_t keys) {
      const at::Tensor queries = blocks.block(q, begin, end), dys = blocks.block(dy, begin, end);
      const at::Tensor read = k.narrow(0, 0, keys), values = v.narrow(0, 0, keys);
      at::Tensor scores = part_of(buffer, queries.size(0), keys);
      at::Tensor dscores = part_of(grad_buffer, queries.size(0), keys);
      at::mm_out(scores, queries, read.t());
      blocks.hide_old_keys(scores, begin, end);
      at::mm_out(dscores, dys, values.t());
      const at::Tensor delta = (dys * blocks.block(y, begin, end)).sum(1);
      kernels::attention_softmax_backward(
          scores, dscores, rows, blocks.rate(),
          sums.narrow(1, begin, end - begin).reshape({-1}).contiguous(), delta);
      dv.narrow(0, 0, keys).addmm_(scores.t(), dys);
      dk.narrow(0, 0, keys).addmm_(dscores.t(), queries);
      blocks.store_block(at::mm(dscores, read), dq, begin, end);
    });
    blocks.keys(grads.k, group).copy_(dk);
    blocks.keys(grads.v, group).copy_(dv);
  });
}

}  // namespace tessera

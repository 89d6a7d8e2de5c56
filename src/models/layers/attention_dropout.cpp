#include "models/layers/attention_dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "kernels/dropout.h"
#include "kernels/kernels.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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
  Blocks(const AttentionShape& shape, const AttentionDropout& dropout, at::ScalarType dtype)
      : shape_(shape),
        dropout_(dropout),
        rate_(dropout.place.p),
        dtype_(kernels::wide_dtype(dtype)) {
    const int64_t row_bytes =
        groups() * shape.seq_len * static_cast<int64_t>(c10::elementSize(dtype_));
    rows_ = std::clamp<int64_t>(kBlockBytes / row_bytes, 1, shape.seq_len);
  }

  int64_t groups() const { return shape_.heads / shape_.kv_heads; }
  at::ScalarType dtype() const { return dtype_; }
  const kernels::DropoutRate& rate() const { return rate_; }
  at::Tensor buffer(const at::Tensor& like) const {
    return at::empty({groups() * rows_ * shape_.seq_len}, like.options().dtype(dtype_));
  }

  template <typename Body>
  void for_groups(Body body) const {
    for (int64_t sample = 0; sample < shape_.batch; ++sample) {
      for (int64_t kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
        Group group{sample, kv_head, {}};
        for (int64_t i = 0; i < groups(); ++i)
          group.head_keys.push_back(head_key(dropout_.first_head + kv_head * groups() + i));
        body(group);
      }
    }
  }

  // body(rows of the block, begin, end): queries [begin, end) read keys [0, end).
  template <typename Body>
  void for_blocks(const Group& group, Body body) const {
    const int64_t row = dropout_.rows.const_data_ptr<int64_t>()[group.sample];
    const double scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim));
    for (int64_t begin = 0; begin < shape_.seq_len; begin += rows_) {
      const int64_t end = std::min(shape_.seq_len, begin + rows_);
      body(kernels::AttentionRows{end - begin, begin, scale, row, group.head_keys.data()}, begin,
           end);
    }
  }

  // With a sliding window: keys that queries [begin, end) no longer see score -inf, so their
  // probabilities and gradients are zero.
  void hide_old_keys(const at::Tensor& scores, int64_t begin, int64_t end) const {
    if (shape_.window == 0 || end <= shape_.window) return;
    const at::Tensor query = at::arange(begin, end).unsqueeze(1);
    const at::Tensor hidden = at::arange(end).unsqueeze(0) <= query - shape_.window;
    scores.view({-1, end - begin, end})
        .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  }

  // Heads [first, first + count) of a sample of x [B*S, columns]: [count, S, D].
  at::Tensor heads(const at::Tensor& x, int64_t sample, int64_t first, int64_t count) const {
    return x.view({shape_.batch, shape_.seq_len, -1, shape_.head_dim})
        .select(0, sample)
        .narrow(1, first, count)
        .transpose(0, 1);
  }
  at::Tensor queries(const at::Tensor& x, const Group& g) const {
    return heads(x, g.sample, g.kv_head * groups(), groups());
  }
  at::Tensor keys(const at::Tensor& qkv, const Group& g) const {
    return heads(qkv, g.sample, shape_.heads + g.kv_head, 1)[0];
  }
  at::Tensor values(const at::Tensor& qkv, const Group& g) const {
    return heads(qkv, g.sample, shape_.heads + shape_.kv_heads + g.kv_head, 1)[0];
  }

  // Rows [begin, end) of x [heads, S, D] as [heads * rows, D] in the dtype of the computation.
  at::Tensor block(const at::Tensor& x, int64_t begin, int64_t end) const {
    return x.narrow(1, begin, end - begin).to(dtype_).reshape({-1, shape_.head_dim});
  }
  void store_block(const at::Tensor& rows, at::Tensor x, int64_t begin, int64_t end) const {
    x.narrow(1, begin, end - begin).copy_(rows.view({-1, end - begin, shape_.head_dim}));
  }

 private:
  uint64_t head_key(int64_t head) const {
    const auto words = Philox(dropout_.place.key).block(static_cast<uint64_t>(head));
    return words[0] | static_cast<uint64_t>(words[1]) << 32;
  }

  const AttentionShape& shape_;
  const AttentionDropout& dropout_;
  kernels::DropoutRate rate_;
  at::ScalarType dtype_;
  int64_t rows_;
};

at::Tensor part_of(const at::Tensor& buffer, int64_t rows, int64_t columns) {
  return buffer.narrow(0, 0, rows * columns).view({rows, columns});
}

// rotated qkv -> output [B*S, heads * D]; logsumexp [B, heads, S] is written.
at::Tensor forward_blocks(const at::Tensor& qkv, const Blocks& blocks, const at::Tensor& logsumexp,
                          int64_t columns) {
  at::Tensor out = at::empty({qkv.size(0), columns}, qkv.options());
  const at::Tensor buffer = blocks.buffer(qkv);
  blocks.for_groups([&](const Group& group) {
    const at::Tensor q = blocks.queries(qkv, group), y = blocks.queries(out, group);
    const at::Tensor k = blocks.keys(qkv, group).to(blocks.dtype()).contiguous();
    const at::Tensor v = blocks.values(qkv, group).to(blocks.dtype()).contiguous();
    const at::Tensor sums =
        logsumexp[group.sample].narrow(0, group.kv_head * blocks.groups(), blocks.groups());
    blocks.for_blocks(group, [&](const auto& rows, int64_t begin, int64_t end) {
      const at::Tensor queries = blocks.block(q, begin, end);
      at::Tensor scores = part_of(buffer, queries.size(0), end);
      at::mm_out(scores, queries, k.narrow(0, 0, end).t());
      blocks.hide_old_keys(scores, begin, end);
      const at::Tensor row_sums = at::empty({queries.size(0)}, sums.options());
      kernels::attention_softmax(scores, rows, blocks.rate(), row_sums);
      sums.narrow(1, begin, end - begin).copy_(row_sums.view({-1, end - begin}));
      blocks.store_block(at::mm(scores, v.narrow(0, 0, end)), y, begin, end);
    });
  });
  return out;
}

// The gradient w.r.t. rotated qkv.
at::Tensor backward_blocks(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                           const Blocks& blocks, const at::Tensor& logsumexp) {
  at::Tensor dqkv = at::empty_like(qkv);
  const at::Tensor buffer = blocks.buffer(qkv), grad_buffer = blocks.buffer(qkv);
  blocks.for_groups([&](const Group& group) {
    const at::Tensor q = blocks.queries(qkv, group), dq = blocks.queries(dqkv, group);
    const at::Tensor y = blocks.queries(out, group), dy = blocks.queries(dout, group);
    const at::Tensor k = blocks.keys(qkv, group).to(blocks.dtype()).contiguous();
    const at::Tensor v = blocks.values(qkv, group).to(blocks.dtype()).contiguous();
    const at::Tensor dk = at::zeros_like(k), dv = at::zeros_like(v);
    const at::Tensor sums =
        logsumexp[group.sample].narrow(0, group.kv_head * blocks.groups(), blocks.groups());
    blocks.for_blocks(group, [&](const auto& rows, int64_t begin, int64_t end) {
      const at::Tensor queries = blocks.block(q, begin, end), dys = blocks.block(dy, begin, end);
      const at::Tensor keys = k.narrow(0, 0, end), values = v.narrow(0, 0, end);
      at::Tensor scores = part_of(buffer, queries.size(0), end);
      at::Tensor grads = part_of(grad_buffer, queries.size(0), end);
      at::mm_out(scores, queries, keys.t());
      blocks.hide_old_keys(scores, begin, end);
      at::mm_out(grads, dys, values.t());
      const at::Tensor delta = (dys * blocks.block(y, begin, end)).sum(1);
      kernels::attention_softmax_backward(
          scores, grads, rows, blocks.rate(),
          sums.narrow(1, begin, end - begin).reshape({-1}).contiguous(), delta);
      dv.narrow(0, 0, end).addmm_(scores.t(), dys);
      dk.narrow(0, 0, end).addmm_(grads.t(), queries);
      blocks.store_block(at::mm(grads, keys), dq, begin, end);
    });
    blocks.keys(dqkv, group).copy_(dk);
    blocks.values(dqkv, group).copy_(dv);
  });
  return dqkv;
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
    const Blocks blocks(shape, dropout, qkv.scalar_type());
    const at::Tensor logsumexp =
        at::empty({shape.batch, shape.heads, shape.seq_len}, qkv.options().dtype(blocks.dtype()));
    const at::Tensor out = forward_blocks(qkv, blocks, logsumexp, shape.heads * shape.head_dim);
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
    const Blocks blocks(held.shape, held.dropout, qkv.scalar_type());
    const at::Tensor dqkv = backward_blocks(grads[0].contiguous(), qkv, saved["out"].toTensor(),
                                            blocks, saved["logsumexp"].toTensor());
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
  if (dropout.place.p == 0 || !dropout.rows.defined()) return causal_attention(qkv, shape, rope);
  return dropout_attention(qkv, shape, rope, dropout);
}

}  // namespace tessera

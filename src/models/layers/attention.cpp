#include "models/layers/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "base/error.h"
#include "models/layers/blocked_attention.h"
#include "models/layers/library_attention.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// `count` heads from number `first` on of rows [B*S, columns], as [B, count, S, D], a view.
at::Tensor heads_at(const at::Tensor& rows, const AttentionShape& s, int64_t first, int64_t count) {
  return rows.narrow(1, first * s.head_dim, count * s.head_dim)
      .unflatten(0, {s.batch, rows.size(0) / s.batch})
      .unflatten(2, {count, s.head_dim})
      .transpose(1, 2);
}

// q's heads are the first of `rows`; k's and v's follow there, or lie in `kv`.
AttentionHeads heads_in(const at::Tensor& rows, const std::optional<at::Tensor>& kv,
                        const AttentionShape& s) {
  const at::Tensor& read = kv ? *kv : rows;
  const int64_t first = kv ? 0 : s.heads;
  return {heads_at(rows, s, 0, s.heads), heads_at(read, s, first, s.kv_heads),
          heads_at(read, s, first + s.kv_heads, s.kv_heads)};
}

// [B, heads, S, D] -> [B*S, heads * D], without a copy where the heads of a row lie side by side.
at::Tensor rows_of(const at::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0) * heads.size(2), -1});
}

at::Tensor joined(const std::vector<at::Tensor>& outs) {
  return outs.size() == 1 ? outs[0] : at::cat(outs, 2);
}

// In the form that autograd can hold.
struct Held : torch::CustomClassHolder {
  Held(const AttentionShape& s, AttentionOptions o) : shape(s), options(std::move(o)) {}
  const AttentionShape shape;
  const AttentionOptions options;
};

// The kernels whose backward pass is not autograd's own.
struct Attention : Function<Attention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const std::optional<at::Tensor>& kv, const AttentionShape& shape,
                            const AttentionOptions& options) {
    const AttentionHeads in = heads_in(rows, kv, shape);
    const AttentionBlocks made = options.kernel == AttentionKernel::kBlocks
                                     ? blocked_attention(in, options)
                                     : flash_attention(in, options);
    ctx->save_for_backward({rows, kv.value_or(at::Tensor())});
    ctx->saved_data["outs"] = made.outs;
    ctx->saved_data["logsumexps"] = made.logsumexps;
    ctx->saved_data["held"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(shape, options));
    return rows_of(joined(made.outs));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto capsule = ctx->saved_data["held"].toCapsule();
    const auto& held = static_cast<const Held&>(*capsule);
    const AttentionShape& shape = held.shape;
    const AttentionOptions& options = held.options;
    const AttentionBlocks made{ctx->saved_data["outs"].toTensorVector(),
                               ctx->saved_data["logsumexps"].toTensorVector()};
    const auto saved = ctx->get_saved_variables();
    const at::Tensor drows = at::empty_like(saved[0]);
    std::optional<at::Tensor> kv, dkv;
    if (saved[1].defined()) {
      kv = saved[1];
      dkv = at::empty_like(saved[1]);
    }
    const AttentionHeads in = heads_in(saved[0], kv, shape), into = heads_in(drows, dkv, shape);
    const at::Tensor dout = heads_at(grads[0], shape, 0, shape.heads);
    if (options.kernel == AttentionKernel::kBlocks)
      blocked_attention_backward(dout, in, options, made, into);
    else
      flash_attention_backward(dout, in, options, made, into);
    ctx->saved_data.clear();
    return {drows, dkv.value_or(at::Tensor()), {}, {}};
  }
};

AttentionKernel chosen(const at::Tensor& rows, const AttentionOptions& options) {
  if (options.kernel != AttentionKernel::kChosen) return options.kernel;
  if (options.dropout && options.dropout->drops()) return AttentionKernel::kBlocks;
  return rows.is_cpu() ? AttentionKernel::kFlash : AttentionKernel::kOperator;
}

void check_options(const AttentionOptions& options, bool same_sequence) {
  if (options.causal && options.key_lengths.defined())
    fail("attention", "causal and key_lengths together; one of the two masks");
  if (options.window != 0 && !options.causal)
    fail("attention", "window {} without causal; it counts the keys up to a query", options.window);
  if (options.causal && !same_sequence)
    fail("attention", "causal with keys of another sequence; they have no order among the queries");
}

void check_columns(const at::Tensor& rows, const AttentionShape& shape, int64_t heads) {
  if (rows.size(1) != heads * shape.head_dim || rows.size(0) % shape.batch != 0)
    fail("attention", "rows [{}, {}]; {} samples of {} heads of {} are asked for", rows.size(0),
         rows.size(1), shape.batch, heads, shape.head_dim);
}

at::Tensor attention(const at::Tensor& rows, const std::optional<at::Tensor>& kv,
                     const AttentionShape& shape, AttentionOptions options) {
  check_options(options, !kv);
  options.kernel = chosen(rows, options);
  if (options.kernel == AttentionKernel::kOperator)
    return rows_of(joined(attention_by_operator(heads_in(rows, kv, shape), options)));
  return Attention::apply(rows, kv, shape, options);
}

}  // namespace

at::Tensor self_attention(const at::Tensor& qkv, const AttentionShape& shape,
                          const AttentionOptions& options) {
  check_columns(qkv, shape, shape.heads + 2 * shape.kv_heads);
  return attention(qkv, std::nullopt, shape, options);
}

at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& kv, const AttentionShape& shape,
                           const AttentionOptions& options) {
  check_columns(q, shape, shape.heads);
  check_columns(kv, shape, 2 * shape.kv_heads);
  return attention(q, kv, shape, options);
}

}  // namespace tessera

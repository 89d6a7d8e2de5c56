#include "parallel/tensor_parallel/vocab_embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "parallel/tensor_parallel/linear.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The rows of the output that this rank's part of the table fills, and which row of the part each
// takes.
struct LocalRows {
  at::Tensor positions;  // int64 [n]
  at::Tensor ids;        // int64 [n], from 0
};

LocalRows local_rows(const at::Tensor& tokens, int64_t vocab_start, int64_t rows) {
  const at::Tensor ids = tokens.reshape({-1}) - vocab_start;
  const at::Tensor positions = at::logical_and(ids >= 0, ids < rows).nonzero().squeeze(1);
  return {positions, ids.index_select(0, positions)};
}

// A TensorParallel in the form that autograd can hold.
struct Held : torch::CustomClassHolder {
  explicit Held(const TensorParallel& context) : tp(context) {}
  const TensorParallel tp;
};

struct VocabParallelEmbedding : Function<VocabParallelEmbedding> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& value, const Weight& table,
                            const at::Tensor& tokens, int64_t vocab_start, const TensorParallel& tp,
                            at::ScalarType dtype) {
    const auto rows = local_rows(tokens, vocab_start, value.size(0));
    ctx->saved_data["positions"] = rows.positions;
    ctx->saved_data["ids"] = rows.ids;
    ctx->saved_data["grad"] = table.grad;
    ctx->saved_data["tp"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(tp));
    const at::Tensor found = value.detach().index_select(0, rows.ids).to(dtype);
    if (tp.size() == 1) return found;
    at::Tensor y = at::zeros({tokens.numel(), value.size(1)}, found.options());
    y.index_copy_(0, rows.positions, found);
    return tp.sum(y);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor positions = ctx->saved_data["positions"].toTensor();
    at::Tensor grad = ctx->saved_data["grad"].toTensor();
    const at::Tensor ids = ctx->saved_data["ids"].toTensor();
    const auto held = ctx->saved_data["tp"].toCapsule();
    const at::Tensor dy = static_cast<const Held&>(*held).tp.gather(grads[0]);
    ctx->saved_data.clear();
    const at::Tensor rows = dy.index_select(0, positions);
    if (grad.scalar_type() == at::kFloat || grad.scalar_type() == at::kDouble) {
      grad.index_add_(0, ids, rows.to(grad.scalar_type()));
    } else {
      // A frequent token has hundreds of rows: they add up in fp32 and are rounded once.
      const auto [used, place, counts] =
          at::_unique2(ids, /*sorted=*/true, /*return_inverse=*/true);
      at::Tensor sums = at::zeros({used.numel(), rows.size(1)}, rows.options().dtype(at::kFloat));
      sums.index_add_(0, place, rows.to(at::kFloat));
      grad.index_add_(0, used, sums.to(grad.scalar_type()));
    }
    return {{}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor vocab_parallel_embedding(const at::Tensor& tokens, Parameter& table,
                                    const TensorParallel& tp, at::ScalarType dtype) {
  return VocabParallelEmbedding::apply(table.value, Weight{table.value, table.grad}, tokens,
                                       table.box.offset[0], tp, dtype);
}

}  // namespace tessera

#include "parallel/tensor_parallel/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Autograd keeps the weight's views as plain values, not as saved variables: their storage is
// re-pointed between forward and backward, which is no change of the value.
void keep_weight(AutogradContext* ctx, const Weight& weight) {
  ctx->saved_data["value"] = weight.value.detach();
  ctx->saved_data["grad"] = weight.grad;
}

void add_weight_gradient(const AutogradContext* ctx, const at::Tensor& dy, const at::Tensor& x) {
  at::Tensor grad = ctx->saved_data.at("grad").toTensor();
  grad.addmm_(dy.t(), x);
}

// The communicator outlives every graph (it belongs to the mesh); autograd can only hold it as a
// number.
Communicator& communicator_of(const AutogradContext* ctx) {
  return *reinterpret_cast<Communicator*>(ctx->saved_data.at("tp").toInt());
}

void keep_communicator(AutogradContext* ctx, Communicator& tp) {
  ctx->saved_data["tp"] = reinterpret_cast<int64_t>(&tp);
}

struct ColumnParallelLinear : Function<ColumnParallelLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                            Communicator* tp) {
    ctx->save_for_backward({x});
    keep_weight(ctx, weight);
    keep_communicator(ctx, *tp);
    return at::mm(x, weight.value.t());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = at::mm(dy, ctx->saved_data["value"].toTensor());
    Work sum = communicator_of(ctx).all_reduce(dx, ReduceOp::kSum);
    add_weight_gradient(ctx, dy, ctx->get_saved_variables()[0]);
    sum.wait();
    return {dx, {}, {}};
  }
};

struct RowParallelLinear : Function<RowParallelLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                            Communicator* tp) {
    ctx->save_for_backward({x});
    keep_weight(ctx, weight);
    at::Tensor y = at::mm(x, weight.value.t());
    tp->all_reduce(y, ReduceOp::kSum).wait();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = at::mm(dy, ctx->saved_data["value"].toTensor());
    add_weight_gradient(ctx, dy, ctx->get_saved_variables()[0]);
    return {dx, {}, {}};
  }
};

}  // namespace

at::Tensor column_parallel_linear(const at::Tensor& x, const Weight& weight, Communicator& tp) {
  return ColumnParallelLinear::apply(x, weight, &tp);
}

at::Tensor row_parallel_linear(const at::Tensor& x, const Weight& weight, Communicator& tp) {
  return RowParallelLinear::apply(x, weight, &tp);
}

}  // namespace tessera

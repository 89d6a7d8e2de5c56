#include "parallel/tensor_parallel/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A recipe in the form that autograd can hold.
struct HeldRecipe : torch::CustomClassHolder {
  explicit HeldRecipe(Recipe recipe) : make(std::move(recipe)) {}
  const Recipe make;
};

// Autograd keeps the weight's views as plain values, not as saved variables: their storage is
// re-pointed between forward and backward, which is no change of the value. The input is needed for
// the weight's gradient alone.
void keep(AutogradContext* ctx, const at::Tensor& x, const Weight& weight, const Recipe& recipe) {
  ctx->saved_data["value"] = weight.value.detach();
  ctx->saved_data["grad"] = weight.grad;
  if (!weight.grad.defined()) return;
  if (recipe) {
    ctx->saved_data["recipe"] = c10::IValue::make_capsule(c10::make_intrusive<HeldRecipe>(recipe));
  } else {
    ctx->save_for_backward({x});
  }
}

at::Tensor kept_input(const AutogradContext* ctx) {
  const auto recipe = ctx->saved_data.find("recipe");
  if (recipe == ctx->saved_data.end()) return ctx->get_saved_variables()[0];
  return static_cast<const HeldRecipe&>(*recipe->second.toCapsule()).make();
}

void add_weight_gradient(const AutogradContext* ctx, const at::Tensor& dy) {
  at::Tensor grad = ctx->saved_data.at("grad").toTensor();
  if (grad.defined()) grad.addmm_(dy.t(), kept_input(ctx).to(grad.scalar_type()));
}

at::Tensor in_dtype_of(const at::Tensor& x, const at::Tensor& other) {
  return x.to(other.scalar_type());
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
                            Communicator* tp, const Recipe& recipe) {
    keep(ctx, x, weight, recipe);
    keep_communicator(ctx, *tp);
    return in_dtype_of(at::mm(in_dtype_of(x, weight.value), weight.value.t()), x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor value = ctx->saved_data["value"].toTensor();
    const at::Tensor dy = in_dtype_of(grads[0].contiguous(), value);
    at::Tensor dx = at::mm(dy, value);
    Work sum = communicator_of(ctx).all_reduce(dx, ReduceOp::kSum);
    add_weight_gradient(ctx, dy);
    sum.wait();
    ctx->saved_data.clear();
    return {in_dtype_of(dx, grads[0]), {}, {}, {}};
  }
};

struct RowParallelLinear : Function<RowParallelLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                            Communicator* tp, const Recipe& recipe) {
    keep(ctx, x, weight, recipe);
    at::Tensor y = at::mm(in_dtype_of(x, weight.value), weight.value.t());
    tp->all_reduce(y, ReduceOp::kSum).wait();
    return in_dtype_of(y, x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor value = ctx->saved_data["value"].toTensor();
    const at::Tensor dy = in_dtype_of(grads[0].contiguous(), value);
    at::Tensor dx = at::mm(dy, value);
    add_weight_gradient(ctx, dy);
    ctx->saved_data.clear();
    return {in_dtype_of(dx, grads[0]), {}, {}, {}};
  }
};

}  // namespace

at::Tensor column_parallel_linear(const at::Tensor& x, const Weight& weight, Communicator& tp,
                                  Recipe recipe) {
  return ColumnParallelLinear::apply(x, weight, &tp, std::move(recipe));
}

at::Tensor row_parallel_linear(const at::Tensor& x, const Weight& weight, Communicator& tp,
                               Recipe recipe) {
  return RowParallelLinear::apply(x, weight, &tp, std::move(recipe));
}

}  // namespace tessera

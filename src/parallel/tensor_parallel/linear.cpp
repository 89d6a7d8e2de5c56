#include "parallel/tensor_parallel/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "parallel/tensor_parallel/overlapped.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// What the backward pass needs beside the input, in the form that autograd can hold. The weights'
// views are plain values here, not saved variables: their storage is re-pointed between forward and
// backward, which is no change of the value.
struct Layer : torch::CustomClassHolder {
  Layer(const Weight& w, const Weight& b, const TensorParallel& t, Recipe r)
      : weight{w.value.detach(), w.grad}, bias(b), tp(t), recipe(std::move(r)) {}

  const Weight weight, bias;
  const TensorParallel tp;
  const Recipe recipe;
};
using LayerPtr = c10::intrusive_ptr<Layer>;

// The input is needed for the weight's gradient alone.
void keep(AutogradContext* ctx, const at::Tensor& x, const LayerPtr& layer) {
  if (layer->weight.grad.defined() && !layer->recipe) ctx->save_for_backward({x});
  ctx->saved_data["layer"] = c10::IValue::make_capsule(layer);
}

LayerPtr take_layer(AutogradContext* ctx) {
  LayerPtr layer =
      c10::static_intrusive_pointer_cast<Layer>(ctx->saved_data.at("layer").toCapsule());
  ctx->saved_data.clear();
  return layer;
}

at::Tensor kept_input(const AutogradContext* ctx, const Layer& layer) {
  if (!layer.weight.grad.defined()) return {};
  return layer.recipe ? layer.recipe() : ctx->get_saved_variables()[0];
}

at::Tensor in_dtype_of(const at::Tensor& x, const at::Tensor& other) {
  return x.to(other.scalar_type());
}

void add_bias(at::Tensor y, const Layer& layer) {
  if (layer.bias.value.defined()) y.add_(layer.bias.value.detach());
}

void add_weight_gradient(const Layer& layer, const at::Tensor& dy, const at::Tensor& x) {
  at::Tensor grad = layer.weight.grad;
  if (grad.defined()) grad.addmm_(dy.t(), in_dtype_of(x, grad));
}

// Halves add up in fp32 and are rounded once.
void add_bias_gradient(const Layer& layer, const at::Tensor& dy) {
  at::Tensor grad = layer.bias.grad;
  if (!grad.defined()) return;
  const auto wide = dy.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  grad.add_(at::sum(dy, {0}, /*keepdim=*/false, wide));
}

struct ColumnParallelLinear : Function<ColumnParallelLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const LayerPtr& layer) {
    keep(ctx, x, layer);
    const at::Tensor& value = layer->weight.value;
    at::Tensor y = gather_product(in_dtype_of(x, value), value.t(), layer->tp);
    add_bias(y, *layer);
    return in_dtype_of(y, x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const LayerPtr layer = take_layer(ctx);
    const at::Tensor dy = in_dtype_of(grads[0].contiguous(), layer->weight.value);
    const at::Tensor own_x = kept_input(ctx, *layer);
    PendingTensor x = own_x.defined() ? layer->tp.start_gather(own_x) : PendingTensor();
    PendingTensor dx = start_product_sum(dy, layer->weight.value, layer->tp);
    add_weight_gradient(*layer, dy, x.get());
    add_bias_gradient(*layer, dy);
    return {in_dtype_of(dx.get(), grads[0]), {}};
  }
};

struct RowParallelLinear : Function<RowParallelLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const LayerPtr& layer) {
    keep(ctx, x, layer);
    const at::Tensor& value = layer->weight.value;
    at::Tensor y = start_product_sum(in_dtype_of(x, value), value.t(), layer->tp).get();
    add_bias(y, *layer);
    return in_dtype_of(y, x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const LayerPtr layer = take_layer(ctx);
    const at::Tensor own_dy = grads[0].contiguous();
    const at::Tensor& value = layer->weight.value;
    at::Tensor dy;
    const at::Tensor dx = gather_product(in_dtype_of(own_dy, value), value, layer->tp, &dy);
    add_weight_gradient(*layer, dy, kept_input(ctx, *layer));
    add_bias_gradient(*layer, own_dy);
    return {in_dtype_of(dx, grads[0]), {}};
  }
};

}  // namespace

at::Tensor column_parallel_linear(const at::Tensor& x, const Weight& weight,
                                  const TensorParallel& tp, Recipe recipe, const Weight& bias) {
  return ColumnParallelLinear::apply(
      x, c10::make_intrusive<Layer>(weight, bias, tp, std::move(recipe)));
}

at::Tensor row_parallel_linear(const at::Tensor& x, const Weight& weight, const TensorParallel& tp,
                               Recipe recipe, const Weight& bias) {
  return RowParallelLinear::apply(x,
                                  c10::make_intrusive<Layer>(weight, bias, tp, std::move(recipe)));
}

}  // namespace tessera

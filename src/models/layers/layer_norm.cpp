#include "models/layers/layer_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

void add_gradient(const at::Tensor& grad, const at::Tensor& more) {
  if (grad.defined()) at::Tensor(grad).add_(more);
}

// The kernels take one dtype for both, and one of the two may be kept in fp32 beside halves.
at::Tensor as_wide_as(const at::Tensor& value, const at::Tensor& other) {
  return value.scalar_type() == other.scalar_type() ? value : value.to(at::kFloat);
}

// LibTorch's kernels, with the weights taken as values of a bucket: see rms_norm.cpp.
struct LayerNorm : Function<LayerNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                               const Weight& bias, double eps, Recipe* make_y) {
    const at::Tensor w = as_wide_as(weight.value, bias.value);
    const at::Tensor b = as_wide_as(bias.value, weight.value);
    auto [y, mean, rstd] = at::native_layer_norm(x, {x.size(1)}, w, b, eps);
    ctx->save_for_backward({x, mean, rstd});
    ctx->saved_data["weight"] = w;
    ctx->saved_data["weight_grad"] = weight.grad;
    ctx->saved_data["bias"] = b;
    ctx->saved_data["bias_grad"] = bias.grad;
    *make_y = [normalised = x.detach(), w, b, eps] {
      return std::get<0>(at::native_layer_norm(normalised, {normalised.size(1)}, w, b, eps));
    };
    return {x.view_as(x), y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor weight_grad = ctx->saved_data["weight_grad"].toTensor();
    const at::Tensor bias_grad = ctx->saved_data["bias_grad"].toTensor();
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        grads[1].contiguous(), saved[0], {saved[0].size(1)}, saved[1], saved[2],
        ctx->saved_data["weight"].toTensor(), ctx->saved_data["bias"].toTensor(),
        {true, weight_grad.defined(), bias_grad.defined()});
    add_gradient(weight_grad, dweight);
    add_gradient(bias_grad, dbias);
    if (grads[0].defined()) dx.add_(grads[0]);
    return {dx, {}, {}, {}, {}};
  }
};

}  // namespace

NormResult layer_norm(const at::Tensor& x, const Weight& weight, const Weight& bias, double eps) {
  Recipe make_y;
  auto outputs = LayerNorm::apply(x, Weight{weight.value.detach(), weight.grad},
                                  Weight{bias.value.detach(), bias.grad}, eps, &make_y);
  return {outputs[0], outputs[1], std::move(make_y)};
}

NormResult add_layer_norm(const at::Tensor& x, const at::Tensor& delta, const Weight& weight,
                          const Weight& bias, double eps) {
  return layer_norm(x + delta, weight, bias, eps);
}

}  // namespace tessera

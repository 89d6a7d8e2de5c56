#include "models/layers/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "kernels/kernels.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct AddRmsNorm : Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::optional<at::Tensor>& added, const Weight& weight,
                               double eps, Recipe* make_y) {
    const at::Tensor delta = added.value_or(at::Tensor());
    const at::Tensor y = at::empty_like(x);
    const at::Tensor rstd =
        at::empty({x.size(0)}, x.options().dtype(kernels::wide_dtype(x.scalar_type())));
    const at::Tensor sum = delta.defined() ? at::empty_like(x) : x;
    kernels::rms_norm_forward(x, delta, weight.value, eps, y, rstd,
                              delta.defined() ? sum : at::Tensor());
    ctx->save_for_backward({sum, rstd});
    // Views of a bucket: kept as values, since re-pointing their storage is no change.
    ctx->saved_data["value"] = weight.value;
    ctx->saved_data["grad"] = weight.grad;
    ctx->saved_data["has_delta"] = delta.defined();
    *make_y = [normalised = sum.detach(), rstd, value = weight.value] {
      const at::Tensor again = at::empty_like(normalised);
      kernels::rms_norm_apply(normalised, value, rstd, again);
      return again;
    };
    return {sum, y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor dx = at::empty_like(saved[0]);
    const at::Tensor dresidual = grads[0].defined() ? grads[0].contiguous() : at::Tensor();
    kernels::rms_norm_backward(grads[1].contiguous(), saved[0], ctx->saved_data["value"].toTensor(),
                               saved[1], dresidual, dx, ctx->saved_data["grad"].toTensor());
    return {dx, ctx->saved_data["has_delta"].toBool() ? dx : at::Tensor(), {}, {}, {}};
  }
};

NormResult norm(const at::Tensor& x, const std::optional<at::Tensor>& delta, const Weight& weight,
                double eps) {
  Recipe make_y;
  auto outputs =
      AddRmsNorm::apply(x, delta, Weight{weight.value.detach(), weight.grad}, eps, &make_y);
  return {outputs[0], outputs[1], std::move(make_y)};
}

}  // namespace

NormResult rms_norm(const at::Tensor& x, const Weight& weight, double eps) {
  return norm(x, std::nullopt, weight, eps);
}

NormResult add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const Weight& weight,
                        double eps) {
  return norm(x, delta, weight, eps);
}

}  // namespace tessera

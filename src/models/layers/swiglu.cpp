#include "models/layers/swiglu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/kernels.h"

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor product(const at::Tensor& gate_up) {
  at::Tensor out = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
  kernels::swiglu_forward(gate_up, out);
  return out;
}

struct SwiGlu : Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up) {
    ctx->save_for_backward({gate_up});
    return product(gate_up);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor gate_up = ctx->get_saved_variables()[0];
    at::Tensor dgate_up = at::empty_like(gate_up);
    kernels::swiglu_backward(grads[0].contiguous(), gate_up, dgate_up);
    return {dgate_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up) {
  return SwiGlu::apply(gate_up);
}

Recipe swiglu_recipe(const at::Tensor& gate_up) {
  return [kept = gate_up.detach()] { return product(kept); };
}

}  // namespace tessera

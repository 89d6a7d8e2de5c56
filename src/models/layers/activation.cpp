#include "models/layers/activation.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace tessera {

at::Tensor activate(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      // relu() would keep its result, which the next layer may make again instead.
      return at::threshold(x, 0, 0);
  }
  fail("models", "activation {} is not known", static_cast<int>(activation));
}

Recipe activation_recipe(const at::Tensor& x, Activation activation) {
  return [kept = x.detach(), activation] { return activate(kept, activation); };
}

}  // namespace tessera

#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// gelu: x Phi(x) (Hendrycks & Gimpel 2016); gelu_tanh: its approximation by tanh, "gelu_new" of
// Hugging Face; relu: max(x, 0).
enum class Activation { kGelu, kGeluTanh, kRelu };

// Element by element, with autograd. x is kept for the backward pass.
at::Tensor activate(const at::Tensor& x, Activation activation);

// Makes the result again from x, which activate() keeps anyway.
Recipe activation_recipe(const at::Tensor& x, Activation activation);

}  // namespace tessera

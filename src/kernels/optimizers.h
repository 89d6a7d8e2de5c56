#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

// One pass over a shard's states: an optimizer's update, vectorised and threaded as the kernels of
// kernels/kernels.h are. The master is fp32 or fp64, the gradient is of the same dtype, moments are
// of the same dtype or, beside an fp32 master, bf16: computed with in fp32 and rounded to nearest
// even when they are stored. Scalars that follow from the step are computed in fp64.
namespace tessera::kernels {

// What is done to the gradient before any optimizer sees it: it is multiplied by `scale` (clipping
// by norm, division by the loss scale), then each element is clamped to [-limit, limit]
// (torch.nn.utils.clip_grad_value_).
struct GradScalars {
  double scale = 1.0;
  double limit = std::numeric_limits<double>::infinity();
};

struct AdamScalars {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;  // AdamW's decay, p *= 1 - lr * weight_decay; else Adam's, g += weight_decay * p
  int64_t step;    // counts from 1, for bias correction
};

// AdamW (Loshchilov & Hutter 2019) or Adam (Kingma & Ba 2015), as torch.optim.AdamW and Adam
// compute: decay, then both moments, then p -= lr/bc1 * m / (sqrt(v)/sqrt(bc2) + eps).
void adam(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& exp_avg,
          const at::Tensor& exp_avg_sq, const AdamScalars& scalars,
          const GradScalars& grad_scalars = {});

struct SgdScalars {
  double lr, momentum, weight_decay;
  bool nesterov;
};

// SGD as torch.optim.SGD computes (dampening 0): g += weight_decay * p; with momentum b = momentum
// * b + g from b = 0, and the step is along b (or g + momentum * b with nesterov), else along g.
// momentum_buffer is undefined exactly where momentum is 0.
void sgd(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& momentum_buffer,
         const SgdScalars& scalars, const GradScalars& grad_scalars = {});

}  // namespace tessera::kernels

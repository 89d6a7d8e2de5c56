#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/optimizers.h"

// The kernels of kernels.h and optimizers.h on a GPU. They are called from there, with arguments
// that are checked and lie on one GPU, and run on the calling thread's current stream without the
// host waiting for them. In a build without CUDA each is an error that says so (no_cuda.cpp).
namespace tessera::kernels::cuda {

void rms_norm_forward(const at::Tensor& x, const at::Tensor& residual_in, const at::Tensor& weight,
                      double eps, const at::Tensor& y, const at::Tensor& rstd,
                      const at::Tensor& residual_out);
void rms_norm_apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                    const at::Tensor& y);
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& rstd, const at::Tensor& dresidual, const at::Tensor& dx,
                       const at::Tensor& dweight);
void rope_in_place(const at::Tensor& x, int64_t heads, int64_t head_dim, const at::Tensor& cos,
                   const at::Tensor& sin, bool inverse);
void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& out);
void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up, const at::Tensor& dgate_up);
void cross_entropy_max(const at::Tensor& logits, const at::Tensor& row_max);
void cross_entropy_sums(const at::Tensor& logits, const at::Tensor& row_max,
                        const at::Tensor& targets, int64_t vocab_start, const at::Tensor& sum_exp,
                        const at::Tensor& target_logit);
void cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& row_max,
                            const at::Tensor& sum_exp, const at::Tensor& targets,
                            int64_t vocab_start, const at::Tensor& weight);

void convert(const at::Tensor& dst, const at::Tensor& src);
void add_into(const at::Tensor& dst, const at::Tensor& src);

// The sum as an fp64 tensor [1] on the GPU, in an order that depends on numel alone.
at::Tensor sum_squares(const at::Tensor& x);

void adam(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& exp_avg,
          const at::Tensor& exp_avg_sq, const AdamScalars& scalars,
          const GradScalars& grad_scalars);
void sgd(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& momentum_buffer,
         const SgdScalars& scalars, const GradScalars& grad_scalars);

void sum_slices(const at::Tensor& out, const at::Tensor& in);

}  // namespace tessera::kernels::cuda

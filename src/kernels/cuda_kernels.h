#pragma once

#include <ATen/core/Tensor.h>

// The kernels of kernels.h on a GPU. They are called from there, with arguments that are checked
// and lie on one GPU, and run on the calling thread's current stream without the host waiting for
// them. In a build without CUDA each is an error that says so (no_cuda.cpp).
namespace tessera::kernels::cuda {

void convert(const at::Tensor& dst, const at::Tensor& src);
void add_into(const at::Tensor& dst, const at::Tensor& src);

// The sum as an fp64 tensor [1] on the GPU, in an order that depends on numel alone.
at::Tensor sum_squares(const at::Tensor& x);

void sum_slices(const at::Tensor& out, const at::Tensor& in);

}  // namespace tessera::kernels::cuda

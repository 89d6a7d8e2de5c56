// The twin of the .cu files in builds without CUDA.
#include "base/error.h"
#include "kernels/cuda_kernels.h"

namespace tessera::kernels::cuda {
namespace {

[[noreturn]] void refuse(const char* kernel, const at::Tensor& tensor) {
  fail("kernels",
       "{}: the tensors lie on {}; this program was built without CUDA; configure with `cmake "
       "--preset cuda` and build that",
       kernel, tensor.device().str());
}

}  // namespace

void convert(const at::Tensor& dst, const at::Tensor&) {
  refuse("convert", dst);
}

void add_into(const at::Tensor& dst, const at::Tensor&) {
  refuse("add_into", dst);
}

at::Tensor sum_squares(const at::Tensor& x) {
  refuse("sum_squares", x);
}

void sum_slices(const at::Tensor& out, const at::Tensor&) {
  refuse("sum_slices", out);
}

}  // namespace tessera::kernels::cuda

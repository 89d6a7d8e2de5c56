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

void rms_norm_forward(const at::Tensor& x, const at::Tensor&, const at::Tensor&, double,
                      const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  refuse("rms_norm_forward", x);
}

void rms_norm_apply(const at::Tensor& x, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  refuse("rms_norm_apply", x);
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor&, const at::Tensor&,
                       const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  refuse("rms_norm_backward", dy);
}

void rope_in_place(const at::Tensor& x, int64_t, int64_t, const at::Tensor&, const at::Tensor&,
                   bool) {
  refuse("rope_in_place", x);
}

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor&) {
  refuse("swiglu_forward", gate_up);
}

void swiglu_backward(const at::Tensor& dout, const at::Tensor&, const at::Tensor&) {
  refuse("swiglu_backward", dout);
}

void cross_entropy_max(const at::Tensor& logits, const at::Tensor&) {
  refuse("cross_entropy_max", logits);
}

void cross_entropy_sums(const at::Tensor& logits, const at::Tensor&, const at::Tensor&, int64_t,
                        const at::Tensor&, const at::Tensor&) {
  refuse("cross_entropy_sums", logits);
}

void cross_entropy_gradient(const at::Tensor& logits, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, int64_t, const at::Tensor&) {
  refuse("cross_entropy_gradient", logits);
}

void convert(const at::Tensor& dst, const at::Tensor&) {
  refuse("convert", dst);
}

void add_into(const at::Tensor& dst, const at::Tensor&) {
  refuse("add_into", dst);
}

at::Tensor sum_squares(const at::Tensor& x) {
  refuse("sum_squares", x);
}

void adam(const at::Tensor& master, const at::Tensor&, const at::Tensor&, const at::Tensor&,
          const AdamScalars&, const GradScalars&) {
  refuse("adam", master);
}

void sgd(const at::Tensor& master, const at::Tensor&, const at::Tensor&, const SgdScalars&,
         const GradScalars&) {
  refuse("sgd", master);
}

void sum_slices(const at::Tensor& out, const at::Tensor&) {
  refuse("sum_slices", out);
}

}  // namespace tessera::kernels::cuda

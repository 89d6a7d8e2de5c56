// SwiGLU, forward and backward.
#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/exp-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <typename D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1);
  return hn::Div(one, hn::Add(one, exp_lanes(d, hn::Neg(x))));
}

template <typename T>
void forward_rows(const T* gate_up, T* out, int64_t width, int64_t begin, int64_t end) {
  const LanesOf<T> d;
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = gate_up + row * 2 * width;
    const T* up = gate + width;
    T* o = out + row * width;
    for_lanes<1>(d, 0, width, [&](int64_t i, auto part, int) TESSERA_BODY {
      const auto g = load(d, gate + i, part);
      const auto silu = hn::Mul(g, sigmoid(d, g));
      store(d, hn::Mul(silu, load(d, up + i, part)), o + i, part);
    });
  }
}

// silu'(g) = s (1 + g (1 - s)). Both inputs of a lane are read before its two results are written,
// so dgate_up may be gate_up.
template <typename T>
void backward_rows(const T* dout, const T* gate_up, T* dgate_up, int64_t width, int64_t begin,
                   int64_t end) {
  const LanesOf<T> d;
  const auto one = hn::Set(d, 1);
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = gate_up + row * 2 * width;
    const T* up = gate + width;
    const T* dy = dout + row * width;
    T* dgate = dgate_up + row * 2 * width;
    T* dup = dgate + width;
    for_lanes<1>(d, 0, width, [&](int64_t i, auto part, int) TESSERA_BODY {
      const auto g = load(d, gate + i, part);
      const auto u = load(d, up + i, part);
      const auto o = load(d, dy + i, part);
      const auto s = sigmoid(d, g);
      const auto os = hn::Mul(o, s);
      const auto slope = hn::MulAdd(g, hn::Sub(one, s), one);
      store(d, hn::Mul(hn::Mul(os, u), slope), dgate + i, part);
      store(d, hn::Mul(os, g), dup + i, part);
    });
  }
}

void swiglu_forward_target(at::ScalarType dtype, const void* gate_up, void* out, int64_t width,
                           int64_t begin, int64_t end) {
  with_any_type("swiglu_forward", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    forward_rows(static_cast<const T*>(gate_up), static_cast<T*>(out), width, begin, end);
  });
}

void swiglu_backward_target(at::ScalarType dtype, const void* dout, const void* gate_up,
                            void* dgate_up, int64_t width, int64_t begin, int64_t end) {
  with_any_type("swiglu_backward", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    backward_rows(static_cast<const T*>(dout), static_cast<const T*>(gate_up),
                  static_cast<T*>(dgate_up), width, begin, end);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(swiglu_forward_target);
HWY_EXPORT(swiglu_backward_target);

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& out) {
  check_contiguous("swiglu_forward", {{"gate_up", gate_up}, {"out", out}});
  check_dim("swiglu_forward", {"out", out}, 2);
  const int64_t rows = out.size(0), width = out.size(1);
  check_shape("swiglu_forward", {"gate_up", gate_up}, {rows, 2 * width});
  check_dtype("swiglu_forward", {"out", out}, gate_up.scalar_type());
  if (out.is_cuda()) return cuda::swiglu_forward(gate_up, out);
  const auto kernel = TESSERA_DISPATCH(swiglu_forward_target);
  const void* in = gate_up.const_data_ptr();
  void* o = out.data_ptr();
  for_ranges(rows, grain_rows(width), [&](int64_t begin, int64_t end) {
    kernel(out.scalar_type(), in, o, width, begin, end);
  });
}

void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up,
                     const at::Tensor& dgate_up) {
  check_contiguous("swiglu_backward",
                   {{"dout", dout}, {"gate_up", gate_up}, {"dgate_up", dgate_up}});
  check_dim("swiglu_backward", {"dout", dout}, 2);
  const int64_t rows = dout.size(0), width = dout.size(1);
  for (const Argument& argument : {Argument{"gate_up", gate_up}, Argument{"dgate_up", dgate_up}}) {
    check_shape("swiglu_backward", argument, {rows, 2 * width});
    check_dtype("swiglu_backward", argument, dout.scalar_type());
  }
  if (dout.is_cuda()) return cuda::swiglu_backward(dout, gate_up, dgate_up);
  const auto kernel = TESSERA_DISPATCH(swiglu_backward_target);
  const void* dy = dout.const_data_ptr();
  const void* in = gate_up.const_data_ptr();
  void* din = dgate_up.data_ptr();
  for_ranges(rows, grain_rows(width), [&](int64_t begin, int64_t end) {
    kernel(dout.scalar_type(), dy, in, din, width, begin, end);
  });
}

}  // namespace tessera::kernels
#endif

// Rotary embedding and SwiGLU on a GPU: a thread has one pair of elements.
#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/cuda_launch.h"

namespace tessera::kernels::cuda {
namespace {

// Pair `i` of head `h` of row `n` is elements h*D + i and h*D + i + D/2.
template <typename T, typename C>
__global__ void rotate_pairs(T* x, const C* cos, const C* sin, int64_t rows, int64_t stride,
                             int64_t heads, int64_t half, int64_t positions, bool inverse) {
  using W = WideOf<T>;
  const int64_t pairs = heads * half;
  for (int64_t k = first_index(); k < rows * pairs; k += grid_stride()) {
    const int64_t row = k / pairs, head = k % pairs / half, i = k % half;
    const int64_t angle = row % positions * half + i;
    const W c = cast<W>(cos[angle]);
    const W s = inverse ? -cast<W>(sin[angle]) : cast<W>(sin[angle]);
    T* const first = x + row * stride + head * 2 * half + i;
    T* const second = first + half;
    const W x1 = cast<W>(*first), x2 = cast<W>(*second);
    *first = cast<T>(x1 * c - x2 * s);
    *second = cast<T>(x2 * c + x1 * s);
  }
}

template <typename W>
__device__ W sigmoid(W x) {
  return W{1} / (W{1} + exp(-x));
}

template <typename T>
__global__ void gate_elements(const T* gate_up, T* out, int64_t numel, int64_t width) {
  using W = WideOf<T>;
  for (int64_t k = first_index(); k < numel; k += grid_stride()) {
    const int64_t at = k / width * 2 * width + k % width;
    const W gate = cast<W>(gate_up[at]);
    out[k] = cast<T>(gate * sigmoid(gate) * cast<W>(gate_up[at + width]));
  }
}

// silu'(g) = s (1 + g (1 - s)). A thread reads both inputs before it writes: dgate_up may be
// gate_up.
template <typename T>
__global__ void gate_gradients(const T* dout, const T* gate_up, T* dgate_up, int64_t numel,
                               int64_t width) {
  using W = WideOf<T>;
  for (int64_t k = first_index(); k < numel; k += grid_stride()) {
    const int64_t at = k / width * 2 * width + k % width;
    const W gate = cast<W>(gate_up[at]), up = cast<W>(gate_up[at + width]);
    const W s = sigmoid(gate);
    const W scaled = cast<W>(dout[k]) * s;
    dgate_up[at] = cast<T>(scaled * up * (gate * (W{1} - s) + W{1}));
    dgate_up[at + width] = cast<T>(scaled * gate);
  }
}

}  // namespace

void rope_in_place(const at::Tensor& x, int64_t heads, int64_t head_dim, const at::Tensor& cos,
                   const at::Tensor& sin, bool inverse) {
  const int64_t pairs = x.size(0) * heads * (head_dim / 2);
  if (pairs == 0) return;
  const Launch launch("rope_in_place", x);
  with_any_type("rope_in_place", x.scalar_type(), [&](auto of_x) {
    with_any_type("rope_in_place", cos.scalar_type(), [&](auto of_table) {
      using T = typename decltype(of_x)::type;
      using C = typename decltype(of_table)::type;
      rotate_pairs<<<blocks_for(pairs), kThreads, 0, launch.stream()>>>(
          x.mutable_data_ptr<T>(), cos.const_data_ptr<C>(), sin.const_data_ptr<C>(), x.size(0),
          x.size(1), heads, head_dim / 2, cos.size(0), inverse);
    });
  });
  launch.check();
}

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& out) {
  if (out.numel() == 0) return;
  const Launch launch("swiglu_forward", out);
  with_any_type("swiglu_forward", out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    gate_elements<<<blocks_for(out.numel()), kThreads, 0, launch.stream()>>>(
        gate_up.const_data_ptr<T>(), out.mutable_data_ptr<T>(), out.numel(), out.size(1));
  });
  launch.check();
}

void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up,
                     const at::Tensor& dgate_up) {
  if (dout.numel() == 0) return;
  const Launch launch("swiglu_backward", dout);
  with_any_type("swiglu_backward", dout.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    gate_gradients<<<blocks_for(dout.numel()), kThreads, 0, launch.stream()>>>(
        dout.const_data_ptr<T>(), gate_up.const_data_ptr<T>(), dgate_up.mutable_data_ptr<T>(),
        dout.numel(), dout.size(1));
  });
  launch.check();
}

}  // namespace tessera::kernels::cuda

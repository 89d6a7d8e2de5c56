// Optimizer updates on a GPU: one pass, a thread an element.
#include <cmath>

#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/cuda_launch.h"

namespace tessera::kernels::cuda {
namespace {

// A NaN stays one: both comparisons with it are false.
template <typename T>
__device__ T clamp_to(T value, T limit) {
  return value > limit ? limit : value < -limit ? -limit : value;
}

// The scalars of one step in the master's type, derived from it in fp64 on the host.
template <typename T>
struct AdamStep {
  T grad_scale, limit, decay, l2, one_minus_beta1, beta2, one_minus_beta2, step_size,
      inverse_sqrt_bc2, eps;
};

template <typename T>
AdamStep<T> adam_step(const AdamScalars& s, const GradScalars& grad) {
  const double bc1 = 1 - std::pow(s.beta1, static_cast<double>(s.step));
  const double bc2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  const auto narrow = [](double value) { return static_cast<T>(value); };
  return {narrow(grad.scale),
          narrow(grad.limit),
          narrow(s.decoupled ? 1 - s.lr * s.weight_decay : 1.0),
          narrow(s.decoupled ? 0.0 : s.weight_decay),
          narrow(1 - s.beta1),
          narrow(s.beta2),
          narrow(1 - s.beta2),
          narrow(s.lr / bc1),
          narrow(1 / std::sqrt(bc2)),
          narrow(s.eps)};
}

// M: of the moments.
template <typename T, typename M>
__global__ void adam_elements(T* master, const T* grad, M* exp_avg, M* exp_avg_sq, AdamStep<T> s,
                              int64_t numel) {
  for (int64_t i = first_index(); i < numel; i += grid_stride()) {
    const T p = master[i];
    const T g = clamp_to(grad[i] * s.grad_scale, s.limit) + s.l2 * p;
    T m = cast<T>(exp_avg[i]), v = cast<T>(exp_avg_sq[i]);
    m += s.one_minus_beta1 * (g - m);
    v = s.beta2 * v + s.one_minus_beta2 * g * g;
    master[i] = p * s.decay - s.step_size * (m / (sqrt(v) * s.inverse_sqrt_bc2 + s.eps));
    exp_avg[i] = cast<M>(m);
    exp_avg_sq[i] = cast<M>(v);
  }
}

template <typename T, typename M>
__global__ void sgd_elements(T* master, const T* grad, M* buffer, T grad_scale, T limit, T lr,
                             T momentum, T l2, bool nesterov, int64_t numel) {
  for (int64_t i = first_index(); i < numel; i += grid_stride()) {
    const T p = master[i];
    T direction = clamp_to(grad[i] * grad_scale, limit) + l2 * p;
    if (buffer != nullptr) {
      const T b = momentum * cast<T>(buffer[i]) + direction;
      direction = nesterov ? direction + momentum * b : b;
      buffer[i] = cast<M>(b);
    }
    master[i] = p - lr * direction;
  }
}

// Calls body(Type<T>{}, Type<M>{}) for the master's type and the moments'.
template <typename Body>
void with_moment_type(const char* kernel, at::ScalarType master, at::ScalarType moment, Body body) {
  if (moment == at::kBFloat16) return body(Type<float>{}, Type<c10::BFloat16>{});
  with_wide_type(kernel, master, [&](auto type) { body(type, type); });
}

}  // namespace

void adam(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& exp_avg,
          const at::Tensor& exp_avg_sq, const AdamScalars& scalars,
          const GradScalars& grad_scalars) {
  const int64_t numel = master.numel();
  if (numel == 0) return;
  const Launch launch("adam", master);
  with_moment_type(
      "adam", master.scalar_type(), exp_avg.scalar_type(), [&](auto wide, auto moment) {
        using T = typename decltype(wide)::type;
        using M = typename decltype(moment)::type;
        adam_elements<T, M><<<blocks_for(numel), kThreads, 0, launch.stream()>>>(
            master.mutable_data_ptr<T>(), grad.const_data_ptr<T>(), exp_avg.mutable_data_ptr<M>(),
            exp_avg_sq.mutable_data_ptr<M>(), adam_step<T>(scalars, grad_scalars), numel);
      });
  launch.check();
}

void sgd(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& momentum_buffer,
         const SgdScalars& scalars, const GradScalars& grad_scalars) {
  const int64_t numel = master.numel();
  if (numel == 0) return;
  const bool keeps = momentum_buffer.defined();
  const Launch launch("sgd", master);
  const auto moments = keeps ? momentum_buffer.scalar_type() : master.scalar_type();
  with_moment_type("sgd", master.scalar_type(), moments, [&](auto wide, auto moment) {
    using T = typename decltype(wide)::type;
    using M = typename decltype(moment)::type;
    sgd_elements<T, M><<<blocks_for(numel), kThreads, 0, launch.stream()>>>(
        master.mutable_data_ptr<T>(), grad.const_data_ptr<T>(),
        keeps ? momentum_buffer.mutable_data_ptr<M>() : nullptr, static_cast<T>(grad_scalars.scale),
        static_cast<T>(grad_scalars.limit), static_cast<T>(scalars.lr),
        static_cast<T>(scalars.momentum), static_cast<T>(scalars.weight_decay), scalars.nesterov,
        numel);
  });
  launch.check();
}

}  // namespace tessera::kernels::cuda

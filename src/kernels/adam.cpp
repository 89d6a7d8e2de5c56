// AdamW and Adam in one pass over master, gradient and both moments.
#include <cmath>

#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/optimizers.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adam.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <typename T, typename M>
void adam_range(T* master, const T* grad, M* exp_avg, M* exp_avg_sq, const AdamScalars& s,
                const GradScalars& gs, int64_t begin, int64_t end) {
  const LanesOf<T> d;
  const double step = static_cast<double>(s.step);
  const double bc1 = 1 - std::pow(s.beta1, step);
  const double bc2 = 1 - std::pow(s.beta2, step);
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const auto grad_scale = set(gs.scale);
  const auto highest = set(gs.limit);
  const auto lowest = set(-gs.limit);
  const auto decay = set(s.decoupled ? 1 - s.lr * s.weight_decay : 1);
  const auto l2 = set(s.decoupled ? 0 : s.weight_decay);
  const auto one_minus_beta1 = set(1 - s.beta1);
  const auto beta2 = set(s.beta2);
  const auto one_minus_beta2 = set(1 - s.beta2);
  const auto step_size = set(s.lr / bc1);
  const auto inverse_sqrt_bc2 = set(1 / std::sqrt(bc2));
  const auto eps = set(s.eps);
  for_lanes<1>(d, begin, end, [&](int64_t i, auto part, int) TESSERA_BODY {
    auto p = load(d, master + i, part);
    auto m = load(d, exp_avg + i, part);
    auto v = load(d, exp_avg_sq + i, part);
    auto g = hn::Mul(load(d, grad + i, part), grad_scale);
    g = hn::Min(hn::Max(g, lowest), highest);
    g = hn::MulAdd(l2, p, g);
    m = hn::MulAdd(one_minus_beta1, hn::Sub(g, m), m);
    v = hn::MulAdd(hn::Mul(one_minus_beta2, g), g, hn::Mul(beta2, v));
    const auto denominator = hn::MulAdd(hn::Sqrt(v), inverse_sqrt_bc2, eps);
    p = hn::NegMulAdd(step_size, hn::Div(m, denominator), hn::Mul(p, decay));
    store(d, m, exp_avg + i, part);
    store(d, v, exp_avg_sq + i, part);
    store(d, p, master + i, part);
  });
}

void adam_target(at::ScalarType dtype, bool halves, void* master, const void* grad, void* exp_avg,
                 void* exp_avg_sq, const AdamScalars& scalars, const GradScalars& grad_scalars,
                 int64_t begin, int64_t end) {
  if (halves) {
    return adam_range(static_cast<float*>(master), static_cast<const float*>(grad),
                      static_cast<c10::BFloat16*>(exp_avg), static_cast<c10::BFloat16*>(exp_avg_sq),
                      scalars, grad_scalars, begin, end);
  }
  with_wide_type("adam", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    adam_range(static_cast<T*>(master), static_cast<const T*>(grad), static_cast<T*>(exp_avg),
               static_cast<T*>(exp_avg_sq), scalars, grad_scalars, begin, end);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(adam_target);

void adam(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& exp_avg,
          const at::Tensor& exp_avg_sq, const AdamScalars& scalars,
          const GradScalars& grad_scalars) {
  check_contiguous(
      "adam",
      {{"master", master}, {"grad", grad}, {"exp_avg", exp_avg}, {"exp_avg_sq", exp_avg_sq}});
  const auto dtype = master.scalar_type();
  check_dtype_in("adam", {"master", master}, {at::kFloat, at::kDouble});
  check_dtype("adam", {"grad", grad}, dtype);
  check_moment_dtype("adam", {"exp_avg", exp_avg}, dtype);
  check_dtype("adam", {"exp_avg_sq", exp_avg_sq}, exp_avg.scalar_type());
  for (const Argument& other :
       {Argument{"grad", grad}, Argument{"exp_avg", exp_avg}, Argument{"exp_avg_sq", exp_avg_sq}}) {
    check_numel("adam", other, master.numel());
  }
  if (scalars.step < 1) {
    fail("kernels", "adam: step is {}; it counts from 1, for the bias correction", scalars.step);
  }
  if (master.is_cuda()) return cuda::adam(master, grad, exp_avg, exp_avg_sq, scalars, grad_scalars);
  const auto kernel = TESSERA_DISPATCH(adam_target);
  const bool halves = exp_avg.scalar_type() == at::kBFloat16;
  void* p = master.data_ptr();
  const void* g = grad.const_data_ptr();
  void* m = exp_avg.data_ptr();
  void* v = exp_avg_sq.data_ptr();
  for_ranges(master.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(dtype, halves, p, g, m, v, scalars, grad_scalars, begin, end);
  });
}

}  // namespace tessera::kernels
#endif

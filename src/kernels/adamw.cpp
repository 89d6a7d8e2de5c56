// AdamW in one pass over master, gradient and both moments.
#include <cmath>

#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
void adamw_range(T* master, const T* grad, T* exp_avg, T* exp_avg_sq, const AdamWScalars& s,
                 int64_t begin, int64_t end) {
  const LanesOf<T> d;
  const double step = static_cast<double>(s.step);
  const double bc1 = 1 - std::pow(s.beta1, step);
  const double bc2 = 1 - std::pow(s.beta2, step);
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const auto grad_scale = set(s.grad_scale);
  const auto decay = set(1 - s.lr * s.weight_decay);
  const auto one_minus_beta1 = set(1 - s.beta1);
  const auto beta2 = set(s.beta2);
  const auto one_minus_beta2 = set(1 - s.beta2);
  const auto step_size = set(s.lr / bc1);
  const auto inverse_sqrt_bc2 = set(1 / std::sqrt(bc2));
  const auto eps = set(s.eps);
  for_lanes<1>(d, begin, end, [&](int64_t i, auto part, int) TESSERA_BODY {
    const auto g = hn::Mul(load(d, grad + i, part), grad_scale);
    auto m = load(d, exp_avg + i, part);
    auto v = load(d, exp_avg_sq + i, part);
    auto p = load(d, master + i, part);
    m = hn::MulAdd(one_minus_beta1, hn::Sub(g, m), m);
    v = hn::MulAdd(hn::Mul(one_minus_beta2, g), g, hn::Mul(beta2, v));
    const auto denominator = hn::MulAdd(hn::Sqrt(v), inverse_sqrt_bc2, eps);
    p = hn::NegMulAdd(step_size, hn::Div(m, denominator), hn::Mul(p, decay));
    store(d, m, exp_avg + i, part);
    store(d, v, exp_avg_sq + i, part);
    store(d, p, master + i, part);
  });
}

void adamw_target(at::ScalarType dtype, void* master, const void* grad, void* exp_avg,
                  void* exp_avg_sq, const AdamWScalars& scalars, int64_t begin, int64_t end) {
  with_wide_type("adamw", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    adamw_range(static_cast<T*>(master), static_cast<const T*>(grad), static_cast<T*>(exp_avg),
                static_cast<T*>(exp_avg_sq), scalars, begin, end);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(adamw_target);

void adamw(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& exp_avg,
           const at::Tensor& exp_avg_sq, const AdamWScalars& scalars) {
  check_contiguous_cpu(
      "adamw",
      {{"master", master}, {"grad", grad}, {"exp_avg", exp_avg}, {"exp_avg_sq", exp_avg_sq}});
  const auto dtype = master.scalar_type();
  check_dtype_in("adamw", {"master", master}, {at::kFloat, at::kDouble});
  for (const Argument& other :
       {Argument{"grad", grad}, Argument{"exp_avg", exp_avg}, Argument{"exp_avg_sq", exp_avg_sq}}) {
    check_dtype("adamw", other, dtype);
    check_numel("adamw", other, master.numel());
  }
  if (scalars.step < 1) {
    fail("kernels", "adamw: step is {}; it counts from 1, for the bias correction", scalars.step);
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(adamw_target);
  void* p = master.data_ptr();
  const void* g = grad.const_data_ptr();
  void* m = exp_avg.data_ptr();
  void* v = exp_avg_sq.data_ptr();
  for_ranges(master.numel(), kGrainElements,
             [&](int64_t begin, int64_t end) { kernel(dtype, p, g, m, v, scalars, begin, end); });
}

}  // namespace tessera::kernels
#endif

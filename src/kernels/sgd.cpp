// SGD with or without momentum in one pass over master, gradient and momentum.
#include <type_traits>

#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/optimizers.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sgd.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

// buffer: null for plain SGD.
template <typename T, typename M>
void sgd_range(T* master, const T* grad, M* buffer, const SgdScalars& s, const GradScalars& gs,
               int64_t begin, int64_t end) {
  const LanesOf<T> d;
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const auto grad_scale = set(gs.scale);
  const auto highest = set(gs.limit);
  const auto lowest = set(-gs.limit);
  const auto l2 = set(s.weight_decay);
  const auto momentum = set(s.momentum);
  const auto lr = set(s.lr);
  const auto gradient = [&](int64_t i, auto part, auto p) TESSERA_BODY {
    const auto g = hn::Mul(load(d, grad + i, part), grad_scale);
    return hn::MulAdd(l2, p, hn::Min(hn::Max(g, lowest), highest));
  };
  if (!buffer) {
    for_lanes<1>(d, begin, end, [&](int64_t i, auto part, int) TESSERA_BODY {
      const auto p = load(d, master + i, part);
      store(d, hn::NegMulAdd(lr, gradient(i, part, p), p), master + i, part);
    });
    return;
  }
  for_lanes<1>(d, begin, end, [&](int64_t i, auto part, int) TESSERA_BODY {
    const auto p = load(d, master + i, part);
    const auto g = gradient(i, part, p);
    const auto b = hn::MulAdd(momentum, load(d, buffer + i, part), g);
    const auto direction = s.nesterov ? hn::MulAdd(momentum, b, g) : b;
    store(d, b, buffer + i, part);
    store(d, hn::NegMulAdd(lr, direction, p), master + i, part);
  });
}

void sgd_target(at::ScalarType dtype, bool halves, void* master, const void* grad, void* buffer,
                const SgdScalars& scalars, const GradScalars& grad_scalars, int64_t begin,
                int64_t end) {
  if (halves) {
    return sgd_range(static_cast<float*>(master), static_cast<const float*>(grad),
                     static_cast<c10::BFloat16*>(buffer), scalars, grad_scalars, begin, end);
  }
  with_wide_type("sgd", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    sgd_range(static_cast<T*>(master), static_cast<const T*>(grad), static_cast<T*>(buffer),
              scalars, grad_scalars, begin, end);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(sgd_target);

void sgd(const at::Tensor& master, const at::Tensor& grad, const at::Tensor& momentum_buffer,
         const SgdScalars& scalars, const GradScalars& grad_scalars) {
  check_contiguous("sgd", {{"master", master}, {"grad", grad}});
  const auto dtype = master.scalar_type();
  check_dtype_in("sgd", {"master", master}, {at::kFloat, at::kDouble});
  check_dtype("sgd", {"grad", grad}, dtype);
  check_numel("sgd", {"grad", grad}, master.numel());
  if (momentum_buffer.defined() != (scalars.momentum != 0)) {
    fail("kernels",
         "sgd: momentum is {} and momentum_buffer is {}; it is there unless momentum is 0",
         scalars.momentum, momentum_buffer.defined() ? "there" : "undefined");
  }
  if (momentum_buffer.defined()) {
    const Argument buffer{"momentum_buffer", momentum_buffer};
    check_contiguous_on("sgd", master.device(), {buffer});
    check_moment_dtype("sgd", buffer, dtype);
    check_numel("sgd", buffer, master.numel());
  }
  if (master.is_cuda()) return cuda::sgd(master, grad, momentum_buffer, scalars, grad_scalars);
  void* b = nullptr;
  bool halves = false;
  if (momentum_buffer.defined()) {
    b = momentum_buffer.data_ptr();
    halves = momentum_buffer.scalar_type() == at::kBFloat16;
  }
  const auto kernel = TESSERA_DISPATCH(sgd_target);
  void* p = master.data_ptr();
  const void* g = grad.const_data_ptr();
  for_ranges(master.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(dtype, halves, p, g, b, scalars, grad_scalars, begin, end);
  });
}

}  // namespace tessera::kernels
#endif

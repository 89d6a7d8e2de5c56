// RMSNorm with the residual addition before it, forward and backward.
#include <algorithm>
#include <cmath>

#include <ATen/Functions.h>

#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <typename D>
HWY_INLINE hn::TFromD<D> sum_of(D d, const hn::Vec<D> (&v)[4]) {
  return sum_of(d, hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3])));
}

template <typename T, typename V, typename W = hn::TFromD<LanesOf<T>>>
HWY_INLINE void scale_row(const T* x, const V* weight, W rstd, T* y, int64_t width) {
  const LanesOf<T> d;
  const auto scale = hn::Set(d, rstd);
  for_lanes<1>(d, 0, width, [&](int64_t i, auto part, int) TESSERA_BODY {
    const auto v = hn::Mul(load(d, x + i, part), scale);
    store(d, hn::Mul(v, load(d, weight + i, part)), y + i, part);
  });
}

// Two passes over a row, which stays in the cache between them. What is normalised is the sum as it
// is stored, rounded to T, so that backward sees the same numbers.
template <typename T, typename V, typename W = hn::TFromD<LanesOf<T>>>
void forward_rows(const T* x, const T* residual, const V* weight, double eps, T* y, W* rstd, T* sum,
                  int64_t width, int64_t begin, int64_t end) {
  const LanesOf<T> d;
  for (int64_t row = begin; row < end; ++row) {
    const T* in = x + row * width;
    const auto zero = hn::Zero(d);
    hn::Vec<LanesOf<T>> squares[4] = {zero, zero, zero, zero};
    if (residual != nullptr) {
      const T* r = residual + row * width;
      T* h = sum + row * width;
      for_lanes<4>(d, 0, width, [&](int64_t i, auto part, int slot) TESSERA_BODY {
        store(d, hn::Add(load(d, in + i, part), load(d, r + i, part)), h + i, part);
        const auto v = load(d, h + i, part);
        squares[slot] = hn::MulAdd(v, v, squares[slot]);
      });
      in = h;
    } else {
      for_lanes<4>(d, 0, width, [&](int64_t i, auto part, int slot) TESSERA_BODY {
        const auto v = load(d, in + i, part);
        squares[slot] = hn::MulAdd(v, v, squares[slot]);
      });
    }
    const double mean = static_cast<double>(sum_of(d, squares)) / static_cast<double>(width);
    rstd[row] = static_cast<W>(1 / std::sqrt(mean + eps));
    scale_row(in, weight, rstd[row], y + row * width, width);
  }
}

template <typename T, typename V, typename W = hn::TFromD<LanesOf<T>>>
void apply_rows(const T* x, const V* weight, const W* rstd, T* y, int64_t width, int64_t begin,
                int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    scale_row(x + row * width, weight, rstd[row], y + row * width, width);
  }
}

// With n = x * rstd: dx = rstd * (w dy - n mean(w dy n)) + dresidual, and dw += dy n for the rows
// of the range, into dweight [width] of fp32 (fp64 for fp64).
template <typename T, typename V, typename W = hn::TFromD<LanesOf<T>>>
void backward_rows(const T* dy, const T* x, const V* weight, const W* rstd, const T* dresidual,
                   T* dx, W* dweight, int64_t width, int64_t begin, int64_t end) {
  const LanesOf<T> d;
  for (int64_t row = begin; row < end; ++row) {
    const T* g = dy + row * width;
    const T* in = x + row * width;
    const T* residual = dresidual == nullptr ? nullptr : dresidual + row * width;
    T* out = dx + row * width;
    const auto zero = hn::Zero(d);
    hn::Vec<LanesOf<T>> products[4] = {zero, zero, zero, zero};
    for_lanes<4>(d, 0, width, [&](int64_t i, auto part, int slot) TESSERA_BODY {
      const auto wdy = hn::Mul(load(d, weight + i, part), load(d, g + i, part));
      products[slot] = hn::MulAdd(wdy, load(d, in + i, part), products[slot]);
    });
    const W r = rstd[row];
    const W mean = sum_of(d, products) * r / static_cast<W>(width);
    const auto scale = hn::Set(d, r);
    const auto slope = hn::Set(d, mean);
    const auto pass = [&](auto with_residual) TESSERA_BODY {
      for_lanes<1>(d, 0, width, [&](int64_t i, auto part, int) TESSERA_BODY {
        const auto dyi = load(d, g + i, part);
        const auto normalised = hn::Mul(load(d, in + i, part), scale);
        const auto wdy = hn::Mul(load(d, weight + i, part), dyi);
        auto dxi = hn::Mul(scale, hn::NegMulAdd(normalised, slope, wdy));
        if constexpr (with_residual.value) dxi = hn::Add(dxi, load(d, residual + i, part));
        const auto dw = hn::MulAdd(dyi, normalised, load(d, dweight + i, part));
        store(d, dxi, out + i, part);
        store(d, dw, dweight + i, part);
      });
    };
    if (residual != nullptr) {
      pass(std::true_type{});
    } else {
      pass(std::false_type{});
    }
  }
}

// dweight[i] += the sum of column i of partial [blocks, width], in the order of the blocks.
template <typename T, typename W = hn::TFromD<LanesOf<T>>>
void add_partials(const W* partial, int64_t blocks, T* dweight, int64_t width) {
  const LanesOf<T> d;
  for_lanes<1>(d, 0, width, [&](int64_t i, auto part, int) TESSERA_BODY {
    auto sum = load(d, partial + i, part);
    for (int64_t b = 1; b < blocks; ++b) sum = hn::Add(sum, load(d, partial + b * width + i, part));
    store(d, hn::Add(load(d, dweight + i, part), sum), dweight + i, part);
  });
}

void forward_target(at::ScalarType dtype, const void* x, const void* residual,
                    at::ScalarType weight_dtype, const void* weight, double eps, void* y,
                    void* rstd, void* sum, int64_t width, int64_t begin, int64_t end) {
  with_weight_type("rms_norm_forward", dtype, weight_dtype, [&](auto type, auto weight_type) {
    using T = typename decltype(type)::type;
    using V = typename decltype(weight_type)::type;
    using W = hn::TFromD<LanesOf<T>>;
    forward_rows(static_cast<const T*>(x), static_cast<const T*>(residual),
                 static_cast<const V*>(weight), eps, static_cast<T*>(y), static_cast<W*>(rstd),
                 static_cast<T*>(sum), width, begin, end);
  });
}

void apply_target(at::ScalarType dtype, const void* x, at::ScalarType weight_dtype,
                  const void* weight, const void* rstd, void* y, int64_t width, int64_t begin,
                  int64_t end) {
  with_weight_type("rms_norm_apply", dtype, weight_dtype, [&](auto type, auto weight_type) {
    using T = typename decltype(type)::type;
    using V = typename decltype(weight_type)::type;
    using W = hn::TFromD<LanesOf<T>>;
    apply_rows(static_cast<const T*>(x), static_cast<const V*>(weight), static_cast<const W*>(rstd),
               static_cast<T*>(y), width, begin, end);
  });
}

// Rows [begin, end); the partial sums of the block go to partial + offset.
void backward_target(at::ScalarType dtype, const void* dy, const void* x,
                     at::ScalarType weight_dtype, const void* weight, const void* rstd,
                     const void* dresidual, void* dx, void* partial, int64_t offset, int64_t width,
                     int64_t begin, int64_t end) {
  with_weight_type("rms_norm_backward", dtype, weight_dtype, [&](auto type, auto weight_type) {
    using T = typename decltype(type)::type;
    using V = typename decltype(weight_type)::type;
    using W = hn::TFromD<LanesOf<T>>;
    backward_rows(static_cast<const T*>(dy), static_cast<const T*>(x),
                  static_cast<const V*>(weight), static_cast<const W*>(rstd),
                  static_cast<const T*>(dresidual), static_cast<T*>(dx),
                  static_cast<W*>(partial) + offset, width, begin, end);
  });
}

void add_partials_target(at::ScalarType dtype, const void* partial, int64_t blocks, void* dweight,
                         int64_t width) {
  with_any_type("rms_norm_backward", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using W = hn::TFromD<LanesOf<T>>;
    add_partials(static_cast<const W*>(partial), blocks, static_cast<T*>(dweight), width);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

// Rows whose weight gradients add up in one buffer. The blocks depend on the number of rows alone,
// so the sum does not depend on the number of threads.
int64_t rows_per_block(int64_t rows) {
  return std::max<int64_t>(64, (rows + 31) / 32);
}

const void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

void check_like(const char* kernel, const at::Tensor& x, std::initializer_list<Argument> others) {
  check_contiguous_on(kernel, x.device(), others);
  for (const Argument& other : others) {
    check_shape(kernel, other, x.sizes());
    check_dtype(kernel, other, x.scalar_type());
  }
}

void check_rows(const char* kernel, const at::Tensor& x, const at::Tensor& weight,
                const at::Tensor& rstd) {
  check_contiguous(kernel, {{"x", x}, {"weight", weight}, {"rstd", rstd}});
  check_dim(kernel, {"x", x}, 2);
  check_shape(kernel, {"weight", weight}, {x.size(1)});
  check_dtype_in(kernel, {"weight", weight}, {x.scalar_type(), wide_dtype(x.scalar_type())});
  check_shape(kernel, {"rstd", rstd}, {x.size(0)});
  check_dtype(kernel, {"rstd", rstd}, wide_dtype(x.scalar_type()));
}

}  // namespace

HWY_EXPORT(forward_target);
HWY_EXPORT(apply_target);
HWY_EXPORT(backward_target);
HWY_EXPORT(add_partials_target);

void rms_norm_forward(const at::Tensor& x, const at::Tensor& residual_in, const at::Tensor& weight,
                      double eps, const at::Tensor& y, const at::Tensor& rstd,
                      const at::Tensor& residual_out) {
  constexpr const char* kName = "rms_norm_forward";
  check_rows(kName, x, weight, rstd);
  check_like(kName, x, {{"y", y}});
  if (residual_in.defined())
    check_like(kName, x, {{"residual_in", residual_in}, {"residual_out", residual_out}});
  if (x.is_cuda())
    return cuda::rms_norm_forward(x, residual_in, weight, eps, y, rstd, residual_out);
  void* const sum = residual_in.defined() ? residual_out.data_ptr() : nullptr;
  const auto kernel = TESSERA_DISPATCH(forward_target);
  const void* residual = data_or_null(residual_in);
  for_ranges(x.size(0), grain_rows(x.size(1)), [&](int64_t begin, int64_t end) {
    kernel(x.scalar_type(), x.const_data_ptr(), residual, weight.scalar_type(),
           weight.const_data_ptr(), eps, y.data_ptr(), rstd.data_ptr(), sum, x.size(1), begin, end);
  });
}

void rms_norm_apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                    const at::Tensor& y) {
  constexpr const char* kName = "rms_norm_apply";
  check_rows(kName, x, weight, rstd);
  check_like(kName, x, {{"y", y}});
  if (x.is_cuda()) return cuda::rms_norm_apply(x, weight, rstd, y);
  const auto kernel = TESSERA_DISPATCH(apply_target);
  for_ranges(x.size(0), grain_rows(x.size(1)), [&](int64_t begin, int64_t end) {
    kernel(x.scalar_type(), x.const_data_ptr(), weight.scalar_type(), weight.const_data_ptr(),
           rstd.const_data_ptr(), y.data_ptr(), x.size(1), begin, end);
  });
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& rstd, const at::Tensor& dresidual, const at::Tensor& dx,
                       const at::Tensor& dweight) {
  constexpr const char* kName = "rms_norm_backward";
  check_rows(kName, x, weight, rstd);
  check_like(kName, x, {{"dy", dy}, {"dx", dx}});
  if (dweight.defined()) check_like(kName, weight, {{"dweight", dweight}});
  if (dresidual.defined()) check_like(kName, x, {{"dresidual", dresidual}});
  if (x.is_cuda()) return cuda::rms_norm_backward(dy, x, weight, rstd, dresidual, dx, dweight);
  const int64_t rows = x.size(0), width = x.size(1);
  if (rows == 0) return;
  const auto dtype = x.scalar_type();
  const int64_t per_block = rows_per_block(rows);
  const int64_t blocks = (rows + per_block - 1) / per_block;
  const at::Tensor partial = at::zeros({blocks, width}, rstd.options());
  const auto kernel = TESSERA_DISPATCH(backward_target);
  const void* residual = data_or_null(dresidual);
  for_ranges(blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      kernel(dtype, dy.const_data_ptr(), x.const_data_ptr(), weight.scalar_type(),
             weight.const_data_ptr(), rstd.const_data_ptr(), residual, dx.data_ptr(),
             partial.data_ptr(), b * width, width, b * per_block,
             std::min(rows, (b + 1) * per_block));
    }
  });
  if (!dweight.defined()) return;
  TESSERA_DISPATCH(add_partials_target)
  (dweight.scalar_type(), partial.const_data_ptr(), blocks, dweight.data_ptr(), width);
}

}  // namespace tessera::kernels
#endif

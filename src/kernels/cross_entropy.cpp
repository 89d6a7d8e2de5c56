// Vocab-parallel cross-entropy in three passes.
#include <cmath>
#include <limits>

#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/exp-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <typename T, typename W = hn::TFromD<LanesOf<T>>>
void max_rows(const T* logits, W* row_max, int64_t width, int64_t begin, int64_t end) {
  const LanesOf<T> d;
  const W lowest = -std::numeric_limits<W>::infinity();
  for (int64_t row = begin; row < end; ++row) {
    const T* l = logits + row * width;
    const auto low = hn::Set(d, lowest);
    hn::Vec<LanesOf<T>> maxima[4] = {low, low, low, low};
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const int64_t whole = width - width % lanes;
    for_lanes<4>(d, 0, whole, [&](int64_t i, auto part, int slot) TESSERA_BODY {
      maxima[slot] = hn::Max(maxima[slot], load(d, l + i, part));
    });
    const auto all = hn::Max(hn::Max(maxima[0], maxima[1]), hn::Max(maxima[2], maxima[3]));
    W result = hn::GetLane(hn::MaxOfLanes(d, all));
    // The zeros beyond the end of a part would count; the rest of a row goes one by one.
    for (int64_t i = whole; i < width; ++i) result = std::max(result, static_cast<W>(l[i]));
    row_max[row] = result;
  }
}

// What is subtracted from a row's logits. A row of nothing but -inf keeps its logits, whose
// exponentials are then 0 and not NaN.
template <typename W>
HWY_INLINE W shift_of(W row_max) {
  return row_max == -std::numeric_limits<W>::infinity() ? W(0) : row_max;
}

template <typename T, typename W = hn::TFromD<LanesOf<T>>>
void sum_rows(const T* logits, const W* row_max, const int64_t* targets, int64_t vocab_start,
              W* sum_exp, W* target_logit, int64_t width, int64_t begin, int64_t end) {
  const LanesOf<T> d;
  for (int64_t row = begin; row < end; ++row) {
    const T* l = logits + row * width;
    const W shift = shift_of(row_max[row]);
    const auto shifts = hn::Set(d, shift);
    const auto zero = hn::Zero(d);
    hn::Vec<LanesOf<T>> sums[4] = {zero, zero, zero, zero};
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const int64_t whole = width - width % lanes;
    for_lanes<4>(d, 0, whole, [&](int64_t i, auto part, int slot) TESSERA_BODY {
      sums[slot] = hn::Add(sums[slot], exp_lanes(d, hn::Sub(load(d, l + i, part), shifts)));
    });
    W sum = sum_of(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
    for (int64_t i = whole; i < width; ++i) sum += std::exp(static_cast<W>(l[i]) - shift);
    sum_exp[row] = sum;
    const int64_t target = targets[row] - vocab_start;
    target_logit[row] = target >= 0 && target < width ? static_cast<W>(l[target]) - shift : W(0);
  }
}

template <typename T, typename W = hn::TFromD<LanesOf<T>>>
void gradient_rows(T* logits, const W* row_max, const W* sum_exp, const int64_t* targets,
                   int64_t vocab_start, const W* weight, int64_t width, int64_t begin,
                   int64_t end) {
  const LanesOf<T> d;
  for (int64_t row = begin; row < end; ++row) {
    T* l = logits + row * width;
    if (weight[row] == 0) {
      std::memset(static_cast<void*>(l), 0, static_cast<size_t>(width) * sizeof(T));
      continue;
    }
    const W w = weight[row];
    const W shift = shift_of(row_max[row]);
    const W scale = sum_exp[row] == 0 ? W(0) : w / sum_exp[row];
    const int64_t target = targets[row] - vocab_start;
    const bool here = target >= 0 && target < width;
    // The target's softmax is near 1 once a model has learned: its difference is taken in fp64.
    const double at_target =
        here ? static_cast<double>(scale) *
                       std::exp(static_cast<double>(static_cast<W>(l[target])) - shift) -
                   static_cast<double>(w)
             : 0;
    const auto shifts = hn::Set(d, shift);
    const auto scales = hn::Set(d, scale);
    for_lanes<1>(d, 0, width, [&](int64_t i, auto part, int) TESSERA_BODY {
      const auto e = exp_lanes(d, hn::Sub(load(d, l + i, part), shifts));
      store(d, hn::Mul(e, scales), l + i, part);
    });
    if (here) l[target] = static_cast<T>(static_cast<W>(at_target));
  }
}

void max_target(at::ScalarType dtype, const void* logits, void* row_max, int64_t width,
                int64_t begin, int64_t end) {
  with_any_type("cross_entropy_max", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using W = hn::TFromD<LanesOf<T>>;
    max_rows(static_cast<const T*>(logits), static_cast<W*>(row_max), width, begin, end);
  });
}

void sums_target(at::ScalarType dtype, const void* logits, const void* row_max,
                 const int64_t* targets, int64_t vocab_start, void* sum_exp, void* target_logit,
                 int64_t width, int64_t begin, int64_t end) {
  with_any_type("cross_entropy_sums", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using W = hn::TFromD<LanesOf<T>>;
    sum_rows(static_cast<const T*>(logits), static_cast<const W*>(row_max), targets, vocab_start,
             static_cast<W*>(sum_exp), static_cast<W*>(target_logit), width, begin, end);
  });
}

void gradient_target(at::ScalarType dtype, void* logits, const void* row_max, const void* sum_exp,
                     const int64_t* targets, int64_t vocab_start, const void* weight, int64_t width,
                     int64_t begin, int64_t end) {
  with_any_type("cross_entropy_gradient", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using W = hn::TFromD<LanesOf<T>>;
    gradient_rows(static_cast<T*>(logits), static_cast<const W*>(row_max),
                  static_cast<const W*>(sum_exp), targets, vocab_start,
                  static_cast<const W*>(weight), width, begin, end);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

// logits [N, V_local], the fp32 (fp64) numbers [N] beside them, and targets [N] if defined.
void check_rows(const char* kernel, const at::Tensor& logits,
                std::initializer_list<Argument> numbers, const at::Tensor& targets) {
  check_contiguous(kernel, {{"logits", logits}});
  check_contiguous_on(kernel, logits.device(), numbers);
  check_dim(kernel, {"logits", logits}, 2);
  for (const Argument& number : numbers) {
    check_shape(kernel, number, {logits.size(0)});
    check_dtype(kernel, number, wide_dtype(logits.scalar_type()));
  }
  if (!targets.defined()) return;
  check_contiguous_on(kernel, logits.device(), {{"targets", targets}});
  check_shape(kernel, {"targets", targets}, {logits.size(0)});
  check_dtype(kernel, {"targets", targets}, at::kLong);
}

}  // namespace

HWY_EXPORT(max_target);
HWY_EXPORT(sums_target);
HWY_EXPORT(gradient_target);

void cross_entropy_max(const at::Tensor& logits, const at::Tensor& row_max) {
  check_rows("cross_entropy_max", logits, {{"row_max", row_max}}, {});
  if (logits.is_cuda()) return cuda::cross_entropy_max(logits, row_max);
  const auto kernel = TESSERA_DISPATCH(max_target);
  for_ranges(logits.size(0), grain_rows(logits.size(1)), [&](int64_t begin, int64_t end) {
    kernel(logits.scalar_type(), logits.const_data_ptr(), row_max.data_ptr(), logits.size(1), begin,
           end);
  });
}

void cross_entropy_sums(const at::Tensor& logits, const at::Tensor& row_max,
                        const at::Tensor& targets, int64_t vocab_start, const at::Tensor& sum_exp,
                        const at::Tensor& target_logit) {
  constexpr const char* kName = "cross_entropy_sums";
  check_contiguous(kName, {{"logits", logits}, {"targets", targets}});
  check_rows(kName, logits,
             {{"row_max", row_max}, {"sum_exp", sum_exp}, {"target_logit", target_logit}}, targets);
  if (logits.is_cuda())
    return cuda::cross_entropy_sums(logits, row_max, targets, vocab_start, sum_exp, target_logit);
  const auto kernel = TESSERA_DISPATCH(sums_target);
  for_ranges(logits.size(0), grain_rows(logits.size(1)), [&](int64_t begin, int64_t end) {
    kernel(logits.scalar_type(), logits.const_data_ptr(), row_max.const_data_ptr(),
           targets.const_data_ptr<int64_t>(), vocab_start, sum_exp.data_ptr(),
           target_logit.data_ptr(), logits.size(1), begin, end);
  });
}

void cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& row_max,
                            const at::Tensor& sum_exp, const at::Tensor& targets,
                            int64_t vocab_start, const at::Tensor& weight) {
  constexpr const char* kName = "cross_entropy_gradient";
  check_contiguous(kName, {{"logits", logits}, {"targets", targets}});
  check_rows(kName, logits, {{"row_max", row_max}, {"sum_exp", sum_exp}, {"weight", weight}},
             targets);
  if (logits.is_cuda())
    return cuda::cross_entropy_gradient(logits, row_max, sum_exp, targets, vocab_start, weight);
  const auto kernel = TESSERA_DISPATCH(gradient_target);
  for_ranges(logits.size(0), grain_rows(logits.size(1)), [&](int64_t begin, int64_t end) {
    kernel(logits.scalar_type(), logits.data_ptr(), row_max.const_data_ptr(),
           sum_exp.const_data_ptr(), targets.const_data_ptr<int64_t>(), vocab_start,
           weight.const_data_ptr(), logits.size(1), begin, end);
  });
}

}  // namespace tessera::kernels
#endif

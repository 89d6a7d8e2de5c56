// Softmax of attention with counted dropout masks, forward and backward.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/dropout.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_softmax.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/exp-inl.h"
#include "kernels/philox-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

// How many of `width` keys row `r` reads.
HWY_INLINE int64_t keys_of(const AttentionRows& rows, int64_t r, int64_t width) {
  return rows.causal ? rows.first_query + r % rows.queries + 1 : width;
}

// Calls body(first, count, factors) for the groups of the `keys` that row `r` reads.
template <typename W, typename Body>
HWY_INLINE void for_groups(const AttentionRows& rows, const DropoutRate& rate, int64_t r,
                           int64_t keys, Body body) {
  HWY_ALIGN W factors[kDropoutGroup];
  const int64_t query = rows.first_query + r % rows.queries;
  const uint64_t key = rows.head_keys[r / rows.queries];
  for (int64_t first = 0; first < keys; first += kDropoutGroup) {
    dropout_factors(key, static_cast<uint64_t>(rows.row), static_cast<uint32_t>(query),
                    first / kDropoutGroup, rate.threshold, static_cast<W>(rate.scale), factors);
    body(first, std::min(kDropoutGroup, keys - first), static_cast<const W*>(factors));
  }
}

template <typename W>
HWY_INLINE void zero_rest(W* row, int64_t from, int64_t width) {
  std::memset(static_cast<void*>(row + from), 0, static_cast<size_t>(width - from) * sizeof(W));
}

template <typename W>
void softmax_rows(W* scores, const AttentionRows& rows, const DropoutRate& rate, W* logsumexp,
                  int64_t width, int64_t begin, int64_t end) {
  const LanesOf<W> d;
  const W factor = static_cast<W>(rows.scale);
  for (int64_t r = begin; r < end; ++r) {
    W* s = scores + r * width;
    const int64_t keys = keys_of(rows, r, width);
    const int64_t whole = keys - keys % static_cast<int64_t>(hn::Lanes(d));
    const auto low = hn::Set(d, -std::numeric_limits<W>::infinity());
    hn::Vec<LanesOf<W>> maxima[4] = {low, low, low, low};
    for_lanes<4>(d, 0, whole, [&](int64_t i, auto part, int slot) TESSERA_BODY {
      maxima[slot] = hn::Max(maxima[slot], load(d, s + i, part));
    });
    const auto all = hn::Max(hn::Max(maxima[0], maxima[1]), hn::Max(maxima[2], maxima[3]));
    W row_max = hn::GetLane(hn::MaxOfLanes(d, all));
    // The zeros beyond the end of a part would count; the rest goes one by one.
    for (int64_t i = whole; i < keys; ++i) row_max = std::max(row_max, s[i]);
    const auto scales = hn::Set(d, factor);
    const auto shifts = hn::Set(d, row_max);
    auto sums = hn::Zero(d);
    for_lanes<1>(d, 0, whole, [&](int64_t i, auto part, int) TESSERA_BODY {
      const auto e = exp_lanes(d, hn::Mul(scales, hn::Sub(load(d, s + i, part), shifts)));
      store(d, e, s + i, part);
      sums = hn::Add(sums, e);
    });
    W sum = sum_of(d, sums);
    for (int64_t i = whole; i < keys; ++i) {
      s[i] = std::exp(factor * (s[i] - row_max));
      sum += s[i];
    }
    logsumexp[r] = factor * row_max + std::log(sum);
    const auto inverse = hn::Set(d, 1 / sum);
    for_groups<W>(rows, rate, r, keys,
                  [&](int64_t first, int64_t count, const W* kept) TESSERA_BODY {
                    for_lanes<1>(d, 0, count, [&](int64_t i, auto part, int) TESSERA_BODY {
                      const auto p = hn::Mul(load(d, s + first + i, part), inverse);
                      store(d, hn::Mul(p, load(d, kept + i, part)), s + first + i, part);
                    });
                  });
    zero_rest(s, keys, width);
  }
}

// With f the mask's factor: p = exp(scale s - logsumexp), ds = scale p (f dp - delta).
template <typename W>
void backward_rows(W* scores, W* grad, const AttentionRows& rows, const DropoutRate& rate,
                   const W* logsumexp, const W* delta, int64_t width, int64_t begin, int64_t end) {
  const LanesOf<W> d;
  const auto scales = hn::Set(d, static_cast<W>(rows.scale));
  for (int64_t r = begin; r < end; ++r) {
    W* s = scores + r * width;
    W* g = grad + r * width;
    const auto shifts = hn::Set(d, logsumexp[r]);
    const auto deltas = hn::Set(d, delta[r]);
    const int64_t keys = keys_of(rows, r, width);
    for_groups<W>(
        rows, rate, r, keys, [&](int64_t first, int64_t count, const W* kept) TESSERA_BODY {
          for_lanes<1>(d, 0, count, [&](int64_t i, auto part, int) TESSERA_BODY {
            const auto p =
                exp_lanes(d, hn::Sub(hn::Mul(scales, load(d, s + first + i, part)), shifts));
            const auto f = load(d, kept + i, part);
            const auto dp = hn::Sub(hn::Mul(f, load(d, g + first + i, part)), deltas);
            store(d, hn::Mul(p, f), s + first + i, part);
            store(d, hn::Mul(scales, hn::Mul(p, dp)), g + first + i, part);
          });
        });
    zero_rest(s, keys, width);
    zero_rest(g, keys, width);
  }
}

void softmax_target(at::ScalarType dtype, void* scores, const AttentionRows& rows,
                    const DropoutRate& rate, void* logsumexp, int64_t width, int64_t begin,
                    int64_t end) {
  with_wide_type("attention_softmax", dtype, [&](auto type) {
    using W = typename decltype(type)::type;
    softmax_rows(static_cast<W*>(scores), rows, rate, static_cast<W*>(logsumexp), width, begin,
                 end);
  });
}

void softmax_backward_target(at::ScalarType dtype, void* scores, void* grad,
                             const AttentionRows& rows, const DropoutRate& rate,
                             const void* logsumexp, const void* delta, int64_t width, int64_t begin,
                             int64_t end) {
  with_wide_type("attention_softmax_backward", dtype, [&](auto type) {
    using W = typename decltype(type)::type;
    backward_rows(static_cast<W*>(scores), static_cast<W*>(grad), rows, rate,
                  static_cast<const W*>(logsumexp), static_cast<const W*>(delta), width, begin,
                  end);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

void check_rows(const char* kernel, const at::Tensor& scores, const AttentionRows& rows,
                std::initializer_list<Argument> numbers) {
  check_contiguous_cpu(kernel, {{"scores", scores}});
  check_contiguous_cpu(kernel, numbers);
  check_dim(kernel, {"scores", scores}, 2);
  for (const Argument& number : numbers) {
    check_shape(kernel, number, {scores.size(0)});
    check_dtype(kernel, number, scores.scalar_type());
  }
  if (rows.queries < 1 || rows.first_query < 0 || scores.size(0) % rows.queries != 0 ||
      scores.size(1) < 1 || (rows.causal && rows.first_query + rows.queries > scores.size(1)))
    fail("kernels",
         "{}: queries {} to {} in {} rows of {} keys; each head has as many rows as queries, and a "
         "causal query reads the keys up to its own",
         kernel, rows.first_query, rows.first_query + rows.queries, scores.size(0), scores.size(1));
}

}  // namespace

HWY_EXPORT(softmax_target);
HWY_EXPORT(softmax_backward_target);

void attention_softmax(const at::Tensor& scores, const AttentionRows& rows, const DropoutRate& rate,
                       const at::Tensor& logsumexp) {
  check_rows("attention_softmax", scores, rows, {{"logsumexp", logsumexp}});
  const auto kernel = TESSERA_DISPATCH(softmax_target);
  void* s = scores.data_ptr();
  void* l = logsumexp.data_ptr();
  for_ranges(scores.size(0), grain_rows(scores.size(1)), [&](int64_t begin, int64_t end) {
    kernel(scores.scalar_type(), s, rows, rate, l, scores.size(1), begin, end);
  });
}

void attention_softmax_backward(const at::Tensor& scores, const at::Tensor& grad,
                                const AttentionRows& rows, const DropoutRate& rate,
                                const at::Tensor& logsumexp, const at::Tensor& delta) {
  constexpr const char* kName = "attention_softmax_backward";
  check_rows(kName, scores, rows, {{"logsumexp", logsumexp}, {"delta", delta}});
  check_contiguous_cpu(kName, {{"grad", grad}});
  check_shape(kName, {"grad", grad}, scores.sizes());
  check_dtype(kName, {"grad", grad}, scores.scalar_type());
  const auto kernel = TESSERA_DISPATCH(softmax_backward_target);
  void* s = scores.data_ptr();
  void* g = grad.data_ptr();
  for_ranges(scores.size(0), grain_rows(scores.size(1)), [&](int64_t begin, int64_t end) {
    kernel(scores.scalar_type(), s, g, rows, rate, logsumexp.const_data_ptr(),
           delta.const_data_ptr(), scores.size(1), begin, end);
  });
}

}  // namespace tessera::kernels
#endif

#include "kernels/dropout.h"

// Dropout of rows by counted masks.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/philox-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <typename T, typename W = hn::TFromD<LanesOf<T>>>
void drop_rows(const T* x, const int64_t* rows, const DropoutRate& rate, uint64_t key,
               int64_t positions, int64_t first_token, int64_t first_column, T* y, int64_t width,
               int64_t begin, int64_t end) {
  const LanesOf<T> d;
  HWY_ALIGN W factors[kDropoutGroup];
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = first_token + row;
    for (int64_t column = 0; column < width;) {
      const int64_t group = (first_column + column) / kDropoutGroup;
      const int64_t skipped = first_column + column - group * kDropoutGroup;
      const int64_t count = std::min(kDropoutGroup - skipped, width - column);
      dropout_factors(key, static_cast<uint64_t>(rows[token / positions]),
                      static_cast<uint32_t>(token % positions), group, rate.threshold,
                      static_cast<W>(rate.scale), factors);
      const T* in = x + row * width + column;
      T* out = y + row * width + column;
      const W* f = factors + skipped;
      for_lanes<1>(d, 0, count, [&](int64_t i, auto part, int) TESSERA_BODY {
        store(d, hn::Mul(load(d, in + i, part), load(d, f + i, part)), out + i, part);
      });
      column += count;
    }
  }
}

void dropout_target(at::ScalarType dtype, const void* x, const int64_t* rows,
                    const DropoutRate& rate, uint64_t key, int64_t positions, int64_t first_token,
                    int64_t first_column, void* y, int64_t width, int64_t begin, int64_t end) {
  with_any_type("dropout", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    drop_rows(static_cast<const T*>(x), rows, rate, key, positions, first_token, first_column,
              static_cast<T*>(y), width, begin, end);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(dropout_target);

DropoutRate::DropoutRate(double p) : scale(1 / (1 - p)) {
  if (!(p >= 0 && p < 1)) fail("kernels", "dropout: p is {}; it must be at least 0 and below 1", p);
  threshold = static_cast<uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
}

void dropout(const at::Tensor& x, const DropoutTokens& tokens, const DropoutRate& rate,
             uint64_t key, const at::Tensor& y) {
  constexpr const char* kName = "dropout";
  const auto& [rows, positions, first, first_column] = tokens;
  check_contiguous_cpu(kName, {{"x", x}, {"rows", rows}, {"y", y}});
  check_dim(kName, {"x", x}, 2);
  check_shape(kName, {"y", y}, x.sizes());
  check_dtype(kName, {"y", y}, x.scalar_type());
  check_dtype(kName, {"rows", rows}, at::kLong);
  const int64_t n = x.size(0);
  if (n == 0) return;
  if (positions < 1 || first < 0 || first + n > rows.numel() * positions)
    fail("kernels", "dropout: tokens {} to {} of {} rows of {} positions; they must lie in them",
         first, first + n, rows.numel(), positions);
  if (first_column < 0)
    fail("kernels", "dropout: first_column {}; columns count from 0", first_column);
  const auto kernel = TESSERA_DISPATCH(dropout_target);
  const void* in = x.const_data_ptr();
  void* out = y.data_ptr();
  const int64_t* row_ids = rows.const_data_ptr<int64_t>();
  for_ranges(n, grain_rows(x.size(1)),
             [&, positions = positions, first = first, first_column = first_column](int64_t begin,
                                                                                    int64_t end) {
               kernel(x.scalar_type(), in, row_ids, rate, key, positions, first, first_column, out,
                      x.size(1), begin, end);
             });
}

}  // namespace tessera::kernels
#endif

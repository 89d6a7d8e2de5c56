// Sums over ranks, in the order of the ranks.
#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sum_ranks.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

// Four vectors at a time: enough additions in flight, and the list of pointers is read once for
// them. All sources of an element are read before it is written, so `out` may be one of them.
template <typename Out, typename In>
void sum_range(Out* out, const In* const* src, int count, int64_t begin, int64_t end) {
  const LanesOf<In> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + 4 * lanes <= end; i += 4 * lanes) {
    auto s0 = load(d, src[0] + i);
    auto s1 = load(d, src[0] + i + lanes);
    auto s2 = load(d, src[0] + i + 2 * lanes);
    auto s3 = load(d, src[0] + i + 3 * lanes);
    for (int k = 1; k < count; ++k) {
      const In* p = src[k] + i;
      s0 = hn::Add(s0, load(d, p));
      s1 = hn::Add(s1, load(d, p + lanes));
      s2 = hn::Add(s2, load(d, p + 2 * lanes));
      s3 = hn::Add(s3, load(d, p + 3 * lanes));
    }
    store(d, s0, out + i);
    store(d, s1, out + i + lanes);
    store(d, s2, out + i + 2 * lanes);
    store(d, s3, out + i + 3 * lanes);
  }
  for_lanes<1>(d, i, end, [&](int64_t at, auto part, int) TESSERA_BODY {
    auto sum = load(d, src[0] + at, part);
    for (int k = 1; k < count; ++k) sum = hn::Add(sum, load(d, src[k] + at, part));
    store(d, sum, out + at, part);
  });
}

void sum_ranks_target(void* out, at::ScalarType out_dtype, const void* const* src,
                      at::ScalarType src_dtype, int count, int64_t begin, int64_t end) {
  with_any_type("sum_ranks", src_dtype, [&](auto type) {
    using In = typename decltype(type)::type;
    const auto* const* in = reinterpret_cast<const In* const*>(src);
    if (out_dtype == src_dtype) {
      sum_range(static_cast<In*>(out), in, count, begin, end);
    } else {
      sum_range(static_cast<float*>(out), in, count, begin, end);
    }
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(sum_ranks_target);

void sum_ranks(void* out, at::ScalarType out_dtype, const void* const* src,
               at::ScalarType src_dtype, int count, int64_t numel) {
  if (count < 1) fail("kernels", "sum_ranks: count is {}; it must be at least 1", count);
  const bool half = src_dtype == at::kBFloat16 || src_dtype == at::kHalf;
  if (out_dtype != src_dtype && !(half && out_dtype == at::kFloat)) {
    fail("kernels", "sum_ranks: {} into {}; the dtypes must be equal, or a half into Float",
         c10::toString(src_dtype), c10::toString(out_dtype));
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(sum_ranks_target);
  for_ranges(numel, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(out, out_dtype, src, src_dtype, count, begin, end);
  });
}

}  // namespace tessera::kernels
#endif

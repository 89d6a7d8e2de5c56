// Sums over ranks, in the order of the ranks.
#include <vector>

#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
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

namespace {

void check_sum_dtypes(const char* kernel, at::ScalarType out, at::ScalarType in) {
  const bool half = in == at::kBFloat16 || in == at::kHalf;
  if (out != in && !(half && out == at::kFloat)) {
    fail("kernels", "{}: {} into {}; the dtypes must be equal, or a half into Float", kernel,
         c10::toString(in), c10::toString(out));
  }
}

}  // namespace

HWY_EXPORT(sum_ranks_target);

void sum_ranks(void* out, at::ScalarType out_dtype, const void* const* src,
               at::ScalarType src_dtype, int count, int64_t numel) {
  if (count < 1) fail("kernels", "sum_ranks: count is {}; it must be at least 1", count);
  check_sum_dtypes("sum_ranks", out_dtype, src_dtype);
  const auto kernel = TESSERA_DISPATCH(sum_ranks_target);
  for_ranges(numel, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(out, out_dtype, src, src_dtype, count, begin, end);
  });
}

void sum_slices(const at::Tensor& out, const at::Tensor& in) {
  check_contiguous("sum_slices", {{"out", out}, {"in", in}});
  check_sum_dtypes("sum_slices", out.scalar_type(), in.scalar_type());
  const int64_t numel = out.numel();
  const int64_t slices = numel == 0 ? 0 : in.numel() / numel;
  if (slices * numel != in.numel() || (numel > 0 && slices == 0)) {
    fail("kernels", "sum_slices: in has {} elements; it must have a multiple of out's {}",
         in.numel(), numel);
  }
  if (out.is_cuda()) return cuda::sum_slices(out, in);
  if (numel == 0) return;
  const auto* first = static_cast<const char*>(in.const_data_ptr());
  std::vector<const void*> sources;
  for (int64_t k = 0; k < slices; ++k)
    sources.push_back(first + k * numel * static_cast<int64_t>(in.element_size()));
  sum_ranks(out.data_ptr(), out.scalar_type(), sources.data(), in.scalar_type(),
            static_cast<int>(slices), numel);
}

}  // namespace tessera::kernels
#endif

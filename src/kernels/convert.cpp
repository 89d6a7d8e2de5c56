// Conversion and accumulation across floating types.
#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <typename Out, typename In>
void convert_range(Out* dst, const In* src, int64_t begin, int64_t end) {
  if constexpr (std::is_same_v<Out, In>) {
    if (dst != src) {
      std::memcpy(dst + begin, src + begin, static_cast<size_t>(end - begin) * sizeof(In));
    }
  } else {
    constexpr bool kDouble = std::is_same_v<Out, double> || std::is_same_v<In, double>;
    const std::conditional_t<kDouble, DD, DF> d;
    for_lanes<1>(d, begin, end, [&](int64_t i, auto part, int) TESSERA_BODY {
      store(d, load(d, src + i, part), dst + i, part);
    });
  }
}

template <typename Out, typename In>
void add_range(Out* dst, const In* src, int64_t begin, int64_t end) {
  if constexpr (std::is_same_v<Out, float> && std::is_same_v<In, double>) {
    const DD wide;
    const hn::Rebind<float, DD> d;
    for_lanes<1>(wide, begin, end, [&](int64_t i, auto part, int) TESSERA_BODY {
      const auto addend = narrow(load(wide, src + i, part));
      store(d, hn::Add(load(d, dst + i, part), addend), dst + i, part);
    });
  } else {
    const LanesOf<Out> d;
    for_lanes<1>(d, begin, end, [&](int64_t i, auto part, int) TESSERA_BODY {
      store(d, hn::Add(load(d, dst + i, part), load(d, src + i, part)), dst + i, part);
    });
  }
}

void convert_target(at::ScalarType dst_dtype, void* dst, at::ScalarType src_dtype, const void* src,
                    int64_t begin, int64_t end) {
  with_any_type("convert", dst_dtype, [&](auto out) {
    with_any_type("convert", src_dtype, [&](auto in) {
      using Out = typename decltype(out)::type;
      using In = typename decltype(in)::type;
      convert_range(static_cast<Out*>(dst), static_cast<const In*>(src), begin, end);
    });
  });
}

void add_into_target(at::ScalarType dst_dtype, void* dst, at::ScalarType src_dtype, const void* src,
                     int64_t begin, int64_t end) {
  with_wide_type("add_into", dst_dtype, [&](auto out) {
    with_any_type("add_into", src_dtype, [&](auto in) {
      using Out = typename decltype(out)::type;
      using In = typename decltype(in)::type;
      add_range(static_cast<Out*>(dst), static_cast<const In*>(src), begin, end);
    });
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

using RangeKernel = void (*)(at::ScalarType, void*, at::ScalarType, const void*, int64_t, int64_t);

void check_flat(const char* name, const at::Tensor& dst, const at::Tensor& src) {
  check_contiguous(name, {{"dst", dst}, {"src", src}});
  check_numel(name, {"src", src}, dst.numel());
  const bool one_memory = dst.const_data_ptr() == src.const_data_ptr();
  if (one_memory && dst.numel() > 0 && dst.scalar_type() != src.scalar_type()) {
    fail("kernels", "{}: dst ({}) and src ({}) are one memory; they may share it only in one dtype",
         name, c10::toString(dst.scalar_type()), c10::toString(src.scalar_type()));
  }
}

void run_flat(RangeKernel kernel, const at::Tensor& dst, const at::Tensor& src) {
  void* out = dst.data_ptr();
  const void* in = src.const_data_ptr();
  for_ranges(dst.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(dst.scalar_type(), out, src.scalar_type(), in, begin, end);
  });
}

}  // namespace

HWY_EXPORT(convert_target);
HWY_EXPORT(add_into_target);

void convert(const at::Tensor& dst, const at::Tensor& src) {
  check_flat("convert", dst, src);
  if (dst.is_cuda()) return cuda::convert(dst, src);
  run_flat(TESSERA_DISPATCH(convert_target), dst, src);
}

void add_into(const at::Tensor& dst, const at::Tensor& src) {
  check_flat("add_into", dst, src);
  if (dst.is_cuda()) return cuda::add_into(dst, src);
  run_flat(TESSERA_DISPATCH(add_into_target), dst, src);
}

}  // namespace tessera::kernels
#endif

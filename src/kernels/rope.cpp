// Rotary position embedding in place.
#include "base/error.h"
#include "kernels/checks.h"
#include "kernels/cuda_kernels.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/vectors-inl.h"

namespace tessera::kernels {
#ifndef TESSERA_KERNELS_ROPE_SHAPE
#define TESSERA_KERNELS_ROPE_SHAPE
namespace {

struct RopeShape {
  int64_t stride;  // columns of a row of x
  int64_t heads;
  int64_t half;       // D / 2
  int64_t positions;  // S
};

}  // namespace
#endif
}  // namespace tessera::kernels

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <bool kInverse, typename T, typename Table>
void rotate_rows(T* x, const Table* cos, const Table* sin, const RopeShape& shape, int64_t begin,
                 int64_t end) {
  const LanesOf<T> d;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t position = row % shape.positions;
    const Table* c_row = cos + position * shape.half;
    const Table* s_row = sin + position * shape.half;
    for (int64_t head = 0; head < shape.heads; ++head) {
      T* first = x + row * shape.stride + head * 2 * shape.half;
      T* second = first + shape.half;
      for_lanes<1>(d, 0, shape.half, [&](int64_t i, auto part, int) TESSERA_BODY {
        const auto c = load(d, c_row + i, part);
        const auto s = load(d, s_row + i, part);
        const auto x1 = load(d, first + i, part);
        const auto x2 = load(d, second + i, part);
        if constexpr (kInverse) {
          store(d, hn::MulAdd(x2, s, hn::Mul(x1, c)), first + i, part);
          store(d, hn::NegMulAdd(x1, s, hn::Mul(x2, c)), second + i, part);
        } else {
          store(d, hn::NegMulAdd(x2, s, hn::Mul(x1, c)), first + i, part);
          store(d, hn::MulAdd(x1, s, hn::Mul(x2, c)), second + i, part);
        }
      });
    }
  }
}

template <typename Table>
void rotate(at::ScalarType dtype, void* x, const Table* cos, const Table* sin,
            const RopeShape& shape, bool inverse, int64_t begin, int64_t end) {
  with_any_type("rope_in_place", dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (inverse) {
      rotate_rows<true>(static_cast<T*>(x), cos, sin, shape, begin, end);
    } else {
      rotate_rows<false>(static_cast<T*>(x), cos, sin, shape, begin, end);
    }
  });
}

void rope_target(at::ScalarType dtype, void* x, at::ScalarType table, const void* cos,
                 const void* sin, const RopeShape& shape, bool inverse, int64_t begin,
                 int64_t end) {
  if (table == at::kBFloat16) {
    using Table = c10::BFloat16;
    rotate(dtype, x, static_cast<const Table*>(cos), static_cast<const Table*>(sin), shape, inverse,
           begin, end);
  } else {
    rotate(dtype, x, static_cast<const float*>(cos), static_cast<const float*>(sin), shape, inverse,
           begin, end);
  }
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(rope_target);

void rope_in_place(const at::Tensor& x, int64_t heads, int64_t head_dim, const at::Tensor& cos,
                   const at::Tensor& sin, bool inverse) {
  check_contiguous("rope_in_place", {{"x", x}, {"cos", cos}, {"sin", sin}});
  check_dim("rope_in_place", {"x", x}, 2);
  check_dim("rope_in_place", {"cos", cos}, 2);
  if (head_dim < 2 || head_dim % 2 != 0) {
    fail("kernels", "rope_in_place: head_dim is {}; it must be even and at least 2", head_dim);
  }
  if (heads < 0 || heads * head_dim > x.size(1)) {
    fail("kernels", "rope_in_place: {} heads of {} need {} columns; x has {}", heads, head_dim,
         heads * head_dim, x.size(1));
  }
  if (cos.size(0) < 1)
    fail("kernels", "rope_in_place: cos has no rows; it must have one a position");
  for (const Argument& table : {Argument{"cos", cos}, Argument{"sin", sin}}) {
    check_dtype_in("rope_in_place", table, {at::kFloat, at::kBFloat16});
    check_dtype("rope_in_place", table, cos.scalar_type());
    check_shape("rope_in_place", table, {cos.size(0), head_dim / 2});
  }
  if (x.is_cuda()) return cuda::rope_in_place(x, heads, head_dim, cos, sin, inverse);
  const RopeShape shape{x.size(1), heads, head_dim / 2, cos.size(0)};
  const auto kernel = TESSERA_DISPATCH(rope_target);
  void* data = x.data_ptr();
  const void* c = cos.const_data_ptr();
  const void* s = sin.const_data_ptr();
  for_ranges(x.size(0), grain_rows(heads * head_dim), [&](int64_t begin, int64_t end) {
    kernel(x.scalar_type(), data, cos.scalar_type(), c, s, shape, inverse, begin, end);
  });
}

}  // namespace tessera::kernels
#endif

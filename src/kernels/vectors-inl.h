// Vectors of float or double lanes over memory of any floating type.
//
// A kernel is written once over a tag `d` (DF: float lanes, DD: double lanes) and reads and writes
// fp32, fp64, bf16 and fp16 with load() and store(). The end of a row goes through the same code
// with a Part instead of a Whole, so an element's result does not depend on where it stands.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(TESSERA_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_VECTORS_INL_H_
#undef TESSERA_KERNELS_VECTORS_INL_H_
#else
#define TESSERA_KERNELS_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

// Loop bodies are lambdas; they must be inlined for their accumulators to stay in registers.
#undef TESSERA_BODY
#define TESSERA_BODY HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DD = hn::ScalableTag<double>;

// Arithmetic is in fp64 for fp64 tensors and in fp32 for all others.
template <typename T>
using LanesOf = std::conditional_t<std::is_same_v<T, double>, DD, DF>;

template <typename D>
using IfFloat = std::enable_if_t<sizeof(hn::TFromD<D>) == 4>*;

struct Whole {};
struct Part {
  int64_t count;  // lanes in use, at least 1
};

template <typename D, IfFloat<D> = nullptr>
HWY_INLINE hn::Vec<D> load(D d, const float* p, Whole = {}) {
  return hn::LoadU(d, p);
}
HWY_INLINE hn::Vec<DD> load(DD d, const double* p, Whole = {}) {
  return hn::LoadU(d, p);
}

template <typename D, IfFloat<D> = nullptr>
HWY_INLINE hn::Vec<D> load(D d, const c10::BFloat16* p, Whole = {}) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <typename D, IfFloat<D> = nullptr>
HWY_INLINE hn::Vec<D> load(D d, const c10::Half* p, Whole = {}) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) values[i] = static_cast<float>(p[i]);
  return hn::Load(d, values);
#endif
}

// Double lanes over narrower memory: exact.
HWY_INLINE hn::Vec<DD> load(DD d, const float* p, Whole = {}) {
  const hn::Rebind<float, DD> df;
  return hn::PromoteTo(d, hn::LoadU(df, p));
}
template <typename T, typename = std::enable_if_t<sizeof(T) == 2>>
HWY_INLINE hn::Vec<DD> load(DD d, const T* p, Whole = {}) {
  const hn::Rebind<float, DD> df;
  return hn::PromoteTo(d, load(df, p));
}

template <typename D, IfFloat<D> = nullptr>
HWY_INLINE void store(D d, hn::Vec<D> v, float* p, Whole = {}) {
  hn::StoreU(v, d, p);
}
HWY_INLINE void store(DD d, hn::Vec<DD> v, double* p, Whole = {}) {
  hn::StoreU(v, d, p);
}

// fp32 to bf16 on the bits, to nearest even. Adding 0x7FFF plus the last kept bit carries into the
// kept half exactly when the dropped half is above one half, or at it with an odd result; overflow
// carries into infinity. A NaN could carry into a zero, so it is made quiet instead. (AVX-512's own
// instruction flushes denormals.)
template <typename D, IfFloat<D> = nullptr>
HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, c10::BFloat16* p, Whole = {}) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFFu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));  // Ne(v, v) is false on AVX
  const auto half = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  // 0 .. 65535 fits: the saturation of DemoteTo does nothing.
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, half)), d16, reinterpret_cast<uint16_t*>(p));
}

template <typename D, IfFloat<D> = nullptr>
HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, c10::Half* p, Whole = {}) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#else
  HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, values);
  for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = static_cast<c10::Half>(values[i]);
#endif
}

// fp64 to fp32. (Highway's scalar target turns infinity into the largest float.)
HWY_INLINE hn::Vec<hn::Rebind<float, DD>> narrow(hn::Vec<DD> v) {
  const hn::Rebind<float, DD> df;
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(df, static_cast<float>(hn::GetLane(v)));
#else
  return hn::DemoteTo(df, v);
#endif
}
HWY_INLINE void store(DD, hn::Vec<DD> v, float* p, Whole = {}) {
  const hn::Rebind<float, DD> df;
  hn::StoreU(narrow(v), df, p);
}
template <typename T, typename = std::enable_if_t<sizeof(T) == 2>>
HWY_INLINE void store(DD, hn::Vec<DD> v, T* p, Whole = {}) {
  const hn::Rebind<float, DD> df;
  store(df, narrow(v), p);
}

// The last lanes of a row: through a small buffer, zeros beyond.
template <typename D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* p, Part part) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)] = {};
  std::memcpy(buffer, p, static_cast<size_t>(part.count) * sizeof(T));
  return load(d, static_cast<const T*>(buffer));
}
template <typename D, typename T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* p, Part part) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
  store(d, v, static_cast<T*>(buffer));
  std::memcpy(p, buffer, static_cast<size_t>(part.count) * sizeof(T));
}

// body(i, Whole or Part, slot) for every group of lanes in [begin, end). slot counts 0 .. kSlots-1,
// for kernels that keep several accumulators to hide the latency of an addition.
template <int kSlots, typename D, typename Body>
HWY_INLINE void for_lanes([[maybe_unused]] D d, int64_t begin, int64_t end, Body body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + kSlots * lanes <= end; i += kSlots * lanes) {
    body(i, Whole{}, 0);
    if constexpr (kSlots > 1) body(i + lanes, Whole{}, 1);
    if constexpr (kSlots > 2) {
      body(i + 2 * lanes, Whole{}, 2);
      body(i + 3 * lanes, Whole{}, 3);
    }
  }
  if constexpr (kSlots > 1) {
    for (; i + lanes <= end; i += lanes) body(i, Whole{}, 0);
  }
  if (i < end) body(i, Part{end - i}, 0);
}

template <typename D>
HWY_INLINE hn::TFromD<D> sum_of(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

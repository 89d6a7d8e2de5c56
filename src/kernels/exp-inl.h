// exp(v) in every lane, NaN kept.
#include <cmath>

#if defined(TESSERA_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_EXP_INL_H_
#undef TESSERA_KERNELS_EXP_INL_H_
#else
#define TESSERA_KERNELS_EXP_INL_H_
#endif

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

// fp32, error below 2e-7 relative on [-87.3, 88.3]; 0 below and infinity above, where softmax and
// sigmoid want no better. exp(x) = 2^n exp(r) with n = round(x / ln 2); exp(r) is 1 + r + r^2 p(r)
// with p of degree 4 fitted to |r| <= ln(2)/2 (3e-9 relative; the rest is rounding).
HWY_INLINE hn::Vec<DF> exp_lanes(DF d, hn::Vec<DF> x) {
  const hn::RebindToSigned<DF> di;
  const auto set = [&](float value) TESSERA_BODY { return hn::Set(d, value); };
  const auto n = hn::NearestInt(hn::Mul(x, set(1.44269504f)));
  const auto nf = hn::ConvertTo(d, n);
  // ln 2 in two parts: n times the first, which has 9 trailing zero bits, is exact.
  auto r = hn::NegMulAdd(nf, set(0x1.62e4p-1f), x);
  r = hn::NegMulAdd(nf, set(0x1.7f7d1cp-20f), r);
  auto p = hn::MulAdd(set(0.00138143159f), r, set(0.00836885162f));
  p = hn::MulAdd(p, r, set(0.0416684002f));
  p = hn::MulAdd(p, r, set(0.166665196f));
  p = hn::MulAdd(p, r, set(0.49999994f));
  p = hn::MulAdd(hn::Mul(p, r), r, r);
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  const auto y = hn::MulAdd(p, scale, scale);
  // Comparisons with a NaN are false and leave the NaN that came through r.
  const auto not_small = hn::IfThenElse(hn::Lt(x, set(-87.3f)), hn::Zero(d), y);
  return hn::IfThenElse(hn::Gt(x, set(88.3f)), set(INFINITY), not_small);
}

// fp64: the C library's, lane by lane; fp64 models serve tests, not speed.
HWY_INLINE hn::Vec<DD> exp_lanes(DD d, hn::Vec<DD> x) {
  HWY_ALIGN double lanes[HWY_MAX_BYTES / sizeof(double)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::exp(lanes[i]);
  return hn::Load(d, lanes);
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

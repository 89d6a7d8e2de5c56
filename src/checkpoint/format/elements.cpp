#include "checkpoint/format/elements.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace tessera {
namespace {

bool is_floating(Dtype dtype) {
  return dtype == Dtype::kF16 || dtype == Dtype::kBF16 || dtype == Dtype::kF32 ||
         dtype == Dtype::kF64;
}

template <typename From, typename To>
To convert_one(From value) {
  if constexpr (sizeof(To) == 2)
    return static_cast<To>(static_cast<float>(value));
  else if constexpr (sizeof(From) == 2)
    return static_cast<To>(static_cast<float>(value));
  else
    return static_cast<To>(value);
}

// Whether a finite value can become infinite; by rounding also where the exponents are the same.
template <typename From, typename To>
constexpr bool may_overflow() {
  using FromLimits = std::numeric_limits<From>;
  using ToLimits = std::numeric_limits<To>;
  return FromLimits::max_exponent > ToLimits::max_exponent ||
         (FromLimits::max_exponent == ToLimits::max_exponent &&
          FromLimits::digits > ToLimits::digits);
}

template <typename T>
bool finite(T value) {
  if constexpr (sizeof(T) == 2)
    return std::isfinite(static_cast<float>(value));
  else
    return std::isfinite(value);
}

template <typename From, typename To>
int64_t convert_all(const std::byte* from, std::byte* to, int64_t numel) {
  int64_t overflowed = 0;
  for (int64_t i = 0; i < numel; ++i) {  // memcpy: loads and stores that may be unaligned
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    const To result = convert_one<From, To>(value);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &result, sizeof(To));
    if constexpr (may_overflow<From, To>()) overflowed += !finite(result) && finite(value) ? 1 : 0;
  }
  return overflowed;
}

template <typename From>
int64_t convert_from(const std::byte* from, std::byte* to, Dtype to_dtype, int64_t numel) {
  switch (to_dtype) {
    case Dtype::kF16:
      return convert_all<From, c10::Half>(from, to, numel);
    case Dtype::kBF16:
      return convert_all<From, c10::BFloat16>(from, to, numel);
    case Dtype::kF32:
      return convert_all<From, float>(from, to, numel);
    default:
      return convert_all<From, double>(from, to, numel);
  }
}

}  // namespace

bool can_convert(Dtype from, Dtype to) {
  return from == to || (is_floating(from) && is_floating(to));
}

int64_t convert_elements(const std::byte* from, Dtype from_dtype, std::byte* to, Dtype to_dtype,
                         int64_t numel) {
  if (numel <= 0) return 0;
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(numel * dtype_size(from_dtype)));
    return 0;
  }
  if (!can_convert(from_dtype, to_dtype))
    fail("checkpoint", "cannot convert {} to {}; only F32, F64, BF16 and F16 convert",
         dtype_name(from_dtype), dtype_name(to_dtype));
  switch (from_dtype) {
    case Dtype::kF16:
      return convert_from<c10::Half>(from, to, to_dtype, numel);
    case Dtype::kBF16:
      return convert_from<c10::BFloat16>(from, to, to_dtype, numel);
    case Dtype::kF32:
      return convert_from<float>(from, to, to_dtype, numel);
    default:
      return convert_from<double>(from, to, to_dtype, numel);
  }
}

std::string beyond_range(int64_t count, int64_t numel, Dtype dtype) {
  double end = std::numeric_limits<float>::max();
  if (dtype == Dtype::kF16) end = std::numeric_limits<c10::Half>::max();
  if (dtype == Dtype::kBF16) end = std::numeric_limits<c10::BFloat16>::max();
  return fmt::format("{} of {} values {} beyond the range of {}, which ends at {:g}", count, numel,
                     count == 1 ? "is" : "are", dtype_name(dtype), end);
}

}  // namespace tessera

#include "checkpoint/elements.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>

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

template <typename From, typename To>
void convert_all(const std::byte* from, std::byte* to, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {  // memcpy: loads and stores that may be unaligned
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    const To result = convert_one<From, To>(value);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &result, sizeof(To));
  }
}

template <typename From>
void convert_from(const std::byte* from, std::byte* to, Dtype to_dtype, int64_t numel) {
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

void convert_elements(const std::byte* from, Dtype from_dtype, std::byte* to, Dtype to_dtype,
                      int64_t numel) {
  if (numel <= 0) return;
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(numel * dtype_size(from_dtype)));
    return;
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

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace tessera {

// True if convert_elements() takes this pair: any dtype to itself, and among F32, F64, BF16 and
// F16.
bool can_convert(Dtype from, Dtype to);

// to[i] <- from[i] for `numel` elements, rounded to nearest even; BF16 and F16 are reached through
// F32. Buffers may be unaligned and must not overlap. Returns how many finite elements are beyond
// the range of `to_dtype` and became infinite. Error if the pair cannot be converted.
int64_t convert_elements(const std::byte* from, Dtype from_dtype, std::byte* to, Dtype to_dtype,
                         int64_t numel);

// For messages: "3 of 35 values are beyond the range of F16, which ends at 65504".
std::string beyond_range(int64_t count, int64_t numel, Dtype dtype);

}  // namespace tessera

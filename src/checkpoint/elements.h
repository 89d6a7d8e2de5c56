#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace tessera {

// True if convert_elements() takes this pair: any dtype to itself, and among F32, F64, BF16 and
// F16.
bool can_convert(Dtype from, Dtype to);

// to[i] <- from[i] for `numel` elements, rounded to nearest even; BF16 and F16 are reached through
// F32. Buffers may be unaligned and must not overlap. Error if the pair cannot be converted.
void convert_elements(const std::byte* from, Dtype from_dtype, std::byte* to, Dtype to_dtype,
                      int64_t numel);

}  // namespace tessera

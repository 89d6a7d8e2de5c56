#pragma once

#include <cstdint>

namespace tessera {

// The most resident memory this process has had, in bytes.
int64_t peak_resident_bytes();

}  // namespace tessera

#pragma once

#include <cstdint>

namespace tessera {

// The most resident memory this process has had, in bytes.
int64_t peak_resident_bytes();

// What this process holds in memory now without a file behind it, in bytes: heap, stacks, anonymous
// mappings (RssAnon of /proc/self/status).
int64_t anonymous_bytes();

}  // namespace tessera

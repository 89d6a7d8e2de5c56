#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// "1.23 GiB", "512 MiB", "64 KiB".
std::string bytes_text(int64_t bytes);
// "42 s", "3 min 20 s", "5 h 07 min".
std::string duration_text(double seconds);

}  // namespace tessera

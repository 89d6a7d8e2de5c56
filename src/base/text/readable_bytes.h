#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tessera {

// A size as people read it: "17 B", "1.5 MiB", "2.0 TiB".
inline std::string readable_bytes(int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 5; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace tessera

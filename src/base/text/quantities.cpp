#include "base/text/quantities.h"

#include <fmt/format.h>

namespace tessera {

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 0x1p30) return fmt::format("{:.2f} GiB", value / 0x1p30);
  if (value >= 10 * 0x1p20) return fmt::format("{:.0f} MiB", value / 0x1p20);
  return fmt::format("{:.0f} KiB", value / 0x1p10);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
}

}  // namespace tessera

#pragma once

#include <ctime>
#include <string>

namespace tessera {

// "2026-11-30 22:15:03 UTC"
inline std::string utc_text(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

}  // namespace tessera

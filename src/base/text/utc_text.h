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

// The same as ISO 8601 writes it, for programs: "2026-11-30T22:15:03Z"
inline std::string utc_iso_text(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace tessera

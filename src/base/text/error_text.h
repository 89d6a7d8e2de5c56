#pragma once

#include <string>
#include <string_view>

namespace tessera {

// What an error says, without the "[subsystem]" that said it (error.h): for a message that names
// the place itself.
inline std::string without_subsystem(std::string_view text) {
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

}  // namespace tessera

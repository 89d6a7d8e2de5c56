#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera {

// Parses JSON that comes from outside: repeated keys, more than 64 levels and anything after the
// value are errors. `what` names the text in the DamagedError, such as a path.
nlohmann::json parse_json(std::string_view text, const std::string& what);

}  // namespace tessera

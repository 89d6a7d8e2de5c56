#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// What `text` holds that JSON does not allow but nlohmann's parser lets pass: a byte-order mark at
// the front, or NUL, at which that parser stops reading. Other readers (Python's, Rust's) refuse
// both. Continues a message after "it": "begins with a byte-order mark". nullopt: neither.
std::optional<std::string> hidden_bytes(std::string_view text);

// Parses JSON that comes from outside: repeated keys, more than 64 levels, hidden bytes and
// anything after the value are errors. `what` names the text in the DamagedError, such as a path.
nlohmann::json parse_json(std::string_view text, const std::string& what);

}  // namespace tessera

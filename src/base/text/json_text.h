#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// What is in `text` that no JSON has but the parser here passes over: a byte-order mark in front,
// and NUL, after which it reads nothing more. Other readers (Python's, Rust's) refuse both.
std::optional<std::string> hidden_bytes(std::string_view text);

// Parses JSON that comes from outside: repeated keys, more than 64 levels, hidden bytes and
// anything after the value are errors. `what` names the text in the DamagedError, such as a path.
nlohmann::json parse_json(std::string_view text, const std::string& what);

}  // namespace tessera

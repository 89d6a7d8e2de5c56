#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace tessera {

// Numbers exactly as they are written: no octal, no hexadecimal, no underscores, no infinities.
// Either the number or what is wrong with the text.
std::variant<int64_t, std::string> read_integer(const std::string& text);
std::variant<double, std::string> read_real(const std::string& text);

}  // namespace tessera

#include "config/yaml/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace tessera {
namespace {

size_t digits_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  return end - at;
}

size_t sign_length(std::string_view text) {
  return !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
}

// YAML 1.2's core schema for decimal numbers.
bool is_real(std::string_view text) {
  size_t at = sign_length(text);
  const size_t whole = digits_at(text, at);
  at += whole;
  size_t fraction = 0;
  if (at < text.size() && text[at] == '.') {
    fraction = digits_at(text, at + 1);
    at += 1 + fraction;
  }
  if (whole + fraction == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    at += sign_length(text.substr(at));
    const size_t exponent = digits_at(text, at);
    if (exponent == 0) return false;
    at += exponent;
  }
  return at == text.size();
}

// 010 is 8 to some readers and 10 to others.
bool has_leading_zero(std::string_view text) {
  const size_t at = sign_length(text);
  return digits_at(text, at) > 1 && text[at] == '0';
}

std::string without_leading_zeros(std::string_view text) {
  const size_t at = sign_length(text);
  size_t first = at;
  while (digits_at(text, first) > 1 && text[first] == '0') ++first;
  return std::string(text.substr(0, at)) + std::string(text.substr(first));
}

std::string leading_zero_message(std::string_view text) {
  return fmt::format("a leading zero may mean octal; write {}", without_leading_zeros(text));
}

// from_chars takes no plus sign.
template <typename T>
std::errc convert(std::string_view text, T& value) {
  if (text[0] == '+') text.remove_prefix(1);
  return std::from_chars(text.data(), text.data() + text.size(), value).ec;
}

}  // namespace

std::variant<int64_t, std::string> read_integer(const std::string& text) {
  const size_t at = sign_length(text);
  const size_t digits = digits_at(text, at);
  if (digits == 0 || at + digits != text.size()) {
    double value = 0;
    const bool whole = is_real(text) && convert(text, value) == std::errc() && value > -1e15 &&
                       value < 1e15 && value == static_cast<double>(static_cast<int64_t>(value));
    return whole ? fmt::format("write the integer {}", static_cast<int64_t>(value))
                 : std::string("not a decimal integer");
  }
  if (has_leading_zero(text)) return leading_zero_message(text);
  int64_t value = 0;
  if (convert(text, value) != std::errc()) return std::string("out of range");
  return value;
}

std::variant<double, std::string> read_real(const std::string& text) {
  if (!is_real(text)) return std::string("not a decimal number");
  if (has_leading_zero(text)) return leading_zero_message(text);
  double value = 0;
  if (convert(text, value) != std::errc()) {
    return std::string("too large or too small for a double");
  }
  return value;
}

}  // namespace tessera

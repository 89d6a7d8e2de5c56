#include "base/text/name_pattern.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/nearest.h"

namespace tessera {
namespace {

// The pattern as fnmatch() wants it: there, brackets and backslashes mean something too.
std::string escaped(std::string_view pattern) {
  std::string text;
  for (const char c : pattern) {
    if (c == '[' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The name with * for each part between dots that is a number.
std::string kind_of(std::string_view name) {
  std::string kind;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (begin > 0) kind += '.';
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), is_digit);
    kind += number ? std::string_view("*") : part;
    begin = end + 1;
  }
  return kind;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  return ::fnmatch(escaped(pattern).c_str(), std::string(name).c_str(), 0) == 0;
}

std::vector<std::string> near_names(std::string_view pattern, const std::vector<std::string>& names,
                                    size_t count) {
  struct Kind {
    std::string name;
    int distance;
  };
  std::vector<Kind> kinds;
  for (const std::string& name : names) {
    const int d = edit_distance(pattern, name, /*wildcards=*/true);
    std::string kind = kind_of(name);
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const Kind& other) { return other.name == kind; });
    if (known == kinds.end()) {
      kinds.push_back({std::move(kind), d});
    } else {
      known->distance = std::min(known->distance, d);
    }
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const Kind& a, const Kind& b) { return a.distance < b.distance; });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(count, kinds.size()); ++i) nearest.push_back(kinds[i].name);
  return nearest;
}

void check_matches_some(std::string_view key, std::string_view pattern,
                        const std::vector<std::string>& names) {
  const auto fits = [&](const std::string& name) { return matches_pattern(pattern, name); };
  if (std::any_of(names.begin(), names.end(), fits)) return;
  fail_user("config",
            "{}: '{}' matches no parameter; * stands for any text and ? for one character; names "
            "near it: {}",
            key, pattern, fmt::join(near_names(pattern, names), ", "));
}

}  // namespace tessera

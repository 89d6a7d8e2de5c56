#include "base/text/name_pattern.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tessera {
namespace {

// Insertions, deletions and replacements that make a text which fits the pattern out of `name`; 0
// if it fits already. Wagner and Fischer's table, row by row; a * takes any text at no cost.
int distance(std::string_view pattern, std::string_view name) {
  std::vector<int> cost(name.size() + 1);
  std::iota(cost.begin(), cost.end(), 0);
  for (const char wanted : pattern) {
    int diagonal = cost[0];  // of the row before
    if (wanted != '*') ++cost[0];
    for (size_t j = 1; j <= name.size(); ++j) {
      const int above = cost[j];
      if (wanted == '*') {
        cost[j] = std::min(above, cost[j - 1]);
      } else {
        const int replace = diagonal + (wanted == '?' || wanted == name[j - 1] ? 0 : 1);
        cost[j] = std::min({replace, above + 1, cost[j - 1] + 1});
      }
      diagonal = above;
    }
  }
  return cost.back();
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
  return distance(pattern, name) == 0;
}

std::vector<std::string> near_names(std::string_view pattern, const std::vector<std::string>& names,
                                    size_t count) {
  struct Kind {
    std::string name;
    int distance;
  };
  std::vector<Kind> kinds;
  for (const std::string& name : names) {
    const int d = distance(pattern, name);
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

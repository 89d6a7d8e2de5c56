#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// The numbers from 1 to n (and to 65536) that `fits` accepts, as text for a message: "1, 2, 4". At
// most 24 numbers, then ", ..."; "none" if there are none.
template <typename Fits>
std::string list_of(int64_t n, Fits fits) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n && d <= 65536; ++d)
    if (fits(d)) found.push_back(d);
  if (found.empty()) return "none";
  const bool cut = found.size() > 24;
  if (cut) found.resize(24);
  return fmt::format("{}{}", fmt::join(found, ", "), cut ? ", ..." : "");
}

// The divisors of n that `fits` accepts.
template <typename Fits>
std::string divisors(int64_t n, Fits fits) {
  return list_of(n, [&](int64_t d) { return n % d == 0 && fits(d); });
}

inline std::string divisors(int64_t n) {
  return divisors(n, [](int64_t) { return true; });
}

}  // namespace tessera

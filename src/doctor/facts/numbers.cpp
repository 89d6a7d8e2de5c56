#include "doctor/facts/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tessera::doctor {

std::string numbers_text(const std::vector<int>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += last == first ? fmt::format("{}", numbers[first])
                          : fmt::format("{}-{}", numbers[first], numbers[last]);
    first = last + 1;
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + numbers_text(ranks);
}

std::vector<int> parse_numbers(std::string_view text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto read = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc();
  };
  for (int first = 0; read(first);) {
    int last = first;
    if (at < end && *at == '-') {
      ++at;
      if (!read(last)) break;
    }
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    if (at == end || *at != ',') break;
    ++at;
  }
  return numbers;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string rate_text(double bytes_per_s) {
  if (bytes_per_s >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9);
  if (bytes_per_s >= 1e6) return fmt::format("{:.0f} MB/s", bytes_per_s / 1e6);
  return fmt::format("{:.0f} kB/s", bytes_per_s / 1e3);
}

std::string time_text(double seconds) {
  if (seconds >= 1.0) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

}  // namespace tessera::doctor

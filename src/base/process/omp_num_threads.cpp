#include "base/process/omp_num_threads.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace tessera {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// A number from 1 to kMostThreads, else 0.
int thread_count(std::string_view text) {
  text = trimmed(text);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 1 && value <= kMostThreads ? value : 0;
}

}  // namespace

int omp_num_threads() {
  const char* variable = std::getenv("OMP_NUM_THREADS");
  std::string_view rest = variable == nullptr ? "" : variable;
  if (trimmed(rest).empty()) return 1;
  int first = 0;
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    const int count = thread_count(rest.substr(0, comma));
    if (count == 0)
      fail_user("threads",
                "OMP_NUM_THREADS is '{}'; it must be a number of threads from 1 to {}; set it so, "
                "or unset it",
                variable, kMostThreads);
    if (first == 0) first = count;
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return first;
}

}  // namespace tessera

#include "config/yaml/mistakes.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace tessera {

void Mistakes::add(const TextPlace& place, std::string message) {
  list_.push_back({place, std::move(message)});
}

void Mistakes::throw_if_any() const {
  if (list_.empty()) return;
  const auto line_of = [](const Mistake& mistake) {
    return mistake.place.text.empty() ? mistake.message
                                      : mistake.place.text + ": " + mistake.message;
  };
  if (list_.size() == 1) fail_user("config", "{}", line_of(list_[0]));
  std::vector<Mistake> sorted = list_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) {
    const auto order = [](const TextPlace& place) {
      return std::tuple(place.line == 0, place.line, place.column);
    };
    return order(a.place) < order(b.place);
  });
  std::string text;
  for (const Mistake& mistake : sorted) text += "\n  " + line_of(mistake);
  fail_user("config", "{} mistakes:{}", list_.size(), text);
}

void Mistakes::fail(const TextPlace& place, std::string message) {
  add(place, std::move(message));
  throw_if_any();
  std::abort();  // not reached: there is a mistake
}

}  // namespace tessera

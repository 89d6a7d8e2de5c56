#include "config/keys/key_places.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

// What `path` lies in: data.train[0] in data.train, that in data; empty: in nothing.
std::string enclosing(const std::string& path) {
  const size_t end = path.find_last_of(".[");
  return end == std::string::npos ? "" : path.substr(0, end);
}

bool lies_in(std::string_view path, std::string_view outer) {
  return path.starts_with(outer) &&
         (path.size() == outer.size() || path[outer.size()] == '.' || path[outer.size()] == '[');
}

}  // namespace

const TextPlace* KeyPlaces::find(const std::string& path) const {
  const auto found = places_.find(path);
  return found == places_.end() ? nullptr : &found->second;
}

TextPlace KeyPlaces::around(const std::string& path) const {
  // A model from a file has its keys where the file is named.
  if (const TextPlace* file = find("model.config");
      file && lies_in(path, "model") && find(path) == nullptr)
    return *file;
  for (std::string outer = path; !outer.empty(); outer = enclosing(outer))
    if (const TextPlace* place = find(outer)) return *place;
  return {};
}

bool KeyPlaces::refused(const std::string& path) const {
  return std::any_of(refused_.begin(), refused_.end(), [&](const std::string& other) {
    return lies_in(path, other) || lies_in(other, path);
  });
}

void PlacedReport::add(const std::vector<std::string>& keys, std::string message) {
  for (const std::string& key : keys)
    if (places_.refused(key)) return;
  mistakes_.add(place_of(keys), std::move(message));
}

TextPlace PlacedReport::place_of(const std::vector<std::string>& keys) const {
  const TextPlace* first = nullptr;
  for (const std::string& key : keys) {
    const TextPlace* place = places_.find(key);
    if (place && place->overrides) return *place;
    if (place && !first) first = place;
  }
  if (first) return *first;
  return keys.empty() ? TextPlace{} : places_.around(keys[0]);
}

}  // namespace tessera

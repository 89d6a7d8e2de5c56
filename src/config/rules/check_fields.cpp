#include "config/rules/check_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "config/keys/fields.h"

namespace tessera {
namespace {

struct Broken {
  bool operator()(const IntegerValue& v) const {
    const std::optional<int64_t> value = v.get();
    return value ? *value < v.min || *value > v.max : v.word.empty();
  }
  bool operator()(const RealValue& v) const { return !in_range(v.range, *v.value); }
  bool operator()(const RealPairValue& v) const {
    return !in_range(v.range, *v.first) || !in_range(v.range, *v.second);
  }
  bool operator()(const RealListValue& v) const {
    return !std::all_of(v.values->begin(), v.values->end(),
                        [&](double value) { return in_range(v.range, value); });
  }
  bool operator()(const FlagValue&) const { return false; }
  bool operator()(const FlagOrCountValue& v) const {
    return *v.value < 1 && *v.value != v.when_true && *v.value != v.when_false;
  }
  bool operator()(const ChoiceValue& v) const { return v.get() < 0; }
  bool operator()(const TextValue& v) const { return v.word.empty() && v.value->empty(); }
  bool operator()(const TextListValue&) const { return false; }
  bool operator()(const RealOrWordValue& v) const {
    const auto value = v.get();
    const double* number = std::get_if<double>(&value);
    return number && !in_range(v.range, *number);
  }
  // Their fields are checked.
  bool operator()(const MapListValue&) const { return false; }
  bool operator()(const OptionalMapValue&) const { return false; }
};

}  // namespace

bool check_field(const std::string& path, const Field& field, RuleReport& report) {
  bool sound = !std::visit(Broken{}, field.value);
  if (!sound) {
    std::vector<std::string> keys = {path};
    if (!field.follows.empty()) keys.push_back(path.substr(0, path.rfind('.') + 1) + field.follows);
    report.broken(keys, "{}: {}; must be {}", path, value_text(field.value),
                  rule_text(field.value));
  }
  if (const auto* list = std::get_if<MapListValue>(&field.value)) {
    for (size_t i = 0; i < list->size(); ++i) {
      for (const Field& inner : list->fields(i))
        sound &= check_field(fmt::format("{}[{}].{}", path, i, inner.name), inner, report);
    }
  }
  if (const auto* map = std::get_if<OptionalMapValue>(&field.value); map && map->given()) {
    for (const Field& inner : map->fields())
      sound &= check_field(fmt::format("{}.{}", path, inner.name), inner, report);
  }
  return sound;
}

std::set<std::string> check_fields(Config config, RuleReport& report) {
  std::set<std::string> unsound;
  for (const Section& section : describe(config)) {
    for (const Field& field : section.fields)
      if (!check_field(section.path(field), field, report)) unsound.insert(section.name);
  }
  return unsound;
}

}  // namespace tessera

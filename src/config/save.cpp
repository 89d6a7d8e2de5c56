#include "config/save.h"

#include <fmt/format.h>

#include "config/keys/fields.h"

namespace tessera {
namespace {

struct ToJson {
  nlohmann::json operator()(const IntegerValue& v) const {
    const std::optional<int64_t> value = v.get();
    return value ? nlohmann::json(*value) : nlohmann::json(v.word);
  }
  nlohmann::json operator()(const RealValue& v) const { return *v.value; }
  nlohmann::json operator()(const RealPairValue& v) const {
    return nlohmann::json::array({*v.first, *v.second});
  }
  nlohmann::json operator()(const RealListValue& v) const { return *v.values; }
  nlohmann::json operator()(const FlagValue& v) const { return *v.value; }
  nlohmann::json operator()(const FlagOrCountValue& v) const {
    if (*v.value == v.when_true) return true;
    if (*v.value == v.when_false) return false;
    return *v.value;
  }
  nlohmann::json operator()(const ChoiceValue& v) const {
    const int index = v.get();
    return index < 0 ? nlohmann::json() : nlohmann::json(v.words[static_cast<size_t>(index)]);
  }
  nlohmann::json operator()(const TextValue& v) const {
    return v.value->empty() ? v.word : *v.value;
  }
  nlohmann::json operator()(const TextListValue& v) const { return *v.value; }
  nlohmann::json operator()(const RealOrWordValue& v) const {
    const auto value = v.get();
    if (const double* number = std::get_if<double>(&value)) return *number;
    return v.words[std::get<size_t>(value)];
  }
  nlohmann::json operator()(const MapListValue& v) const {
    nlohmann::json items = nlohmann::json::array();
    for (size_t i = 0; i < v.size(); ++i) items.push_back(map_of(v.fields(i)));
    return items;
  }
  nlohmann::json operator()(const OptionalMapValue& v) const {
    return v.given() ? map_of(v.fields()) : nlohmann::json(v.word);
  }

  nlohmann::json map_of(const std::vector<Field>& fields) const {
    nlohmann::json map = nlohmann::json::object();
    for (const Field& field : fields) map[field.name] = std::visit(*this, field.value);
    return map;
  }
};

}  // namespace

std::string to_yaml(const Config& config) {
  Config copy = config;
  std::string text;
  for (const Section& section : describe(copy)) {
    if (!section.name.empty()) text += section.name + ":\n";
    const char* indent = section.name.empty() ? "" : "  ";
    for (const Field& field : section.fields) {
      text += fmt::format("{}{}: {}\n", indent, field.name, value_text(field.value));
    }
  }
  return text;
}

nlohmann::json to_json(const Config& config) {
  Config copy = config;
  nlohmann::json json = nlohmann::json::object();
  for (const Section& section : describe(copy)) {
    nlohmann::json& target = section.name.empty() ? json : json[section.name];
    for (const Field& field : section.fields) {
      target[field.name] = std::visit(ToJson{}, field.value);
    }
  }
  return json;
}

}  // namespace tessera

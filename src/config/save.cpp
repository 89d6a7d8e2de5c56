#include <fmt/format.h>

#include "config/fields.h"
#include "config/load.h"

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
    for (size_t i = 0; i < v.size(); ++i) {
      nlohmann::json item = nlohmann::json::object();
      for (const Field& field : v.fields(i)) item[field.name] = std::visit(*this, field.value);
      items.push_back(std::move(item));
    }
    return items;
  }
};

// A value in a line of the difference.
std::string shown(const nlohmann::json* value) {
  if (value == nullptr) return "(absent)";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

const nlohmann::json* member(const nlohmann::json* object, const std::string& key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

// Keys of `saved` that this version does not have: it cannot tell what they did, so they count as
// mathematics.
void add_unknown(const nlohmann::json& saved, const nlohmann::json& now,
                 std::vector<std::string>& lines) {
  for (const auto& [name, value] : saved.items()) {
    const nlohmann::json* known = member(&now, name);
    if (known == nullptr) {
      lines.push_back(fmt::format("{}: {} -> (absent)", name, value.dump()));
    } else if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) {
        if (member(known, key) == nullptr) {
          lines.push_back(fmt::format("{}.{}: {} -> (absent)", name, key, inner.dump()));
        }
      }
    }
  }
}

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

ConfigDifference compare_for_resume(const nlohmann::json& saved, const Config& now) {
  Config copy = now;
  const nlohmann::json current = to_json(now);
  Config fresh;
  fresh.model = AnyModel(make_model(now.model->type()));
  const nlohmann::json defaults = to_json(fresh);
  ConfigDifference difference;
  for (const Section& section : describe(copy)) {
    const auto in_section = [&](const nlohmann::json& json) {
      return section.name.empty() ? &json : member(&json, section.name);
    };
    for (const Field& field : section.fields) {
      const nlohmann::json* before = member(in_section(saved), field.name);
      const nlohmann::json* after = member(in_section(current), field.name);
      // A key that the saved version did not have yet had its default's meaning.
      const nlohmann::json* meant = before ? before : member(in_section(defaults), field.name);
      if (*meant == *after) continue;
      auto& lines =
          field.on_resume == OnResume::kMathematics ? difference.mathematics : difference.other;
      lines.push_back(
          fmt::format("{}: {} -> {}", section.path(field), shown(before), shown(after)));
    }
  }
  add_unknown(saved, current, difference.mathematics);
  return difference;
}

}  // namespace tessera

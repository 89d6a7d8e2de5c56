#include "base/fields/field.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files/path_text.h"

namespace tessera {
namespace {

std::string range_text(const RealRange& range) {
  std::string text = "finite number";
  if (std::isfinite(range.min)) {
    text = fmt::format("number {} {}", range.above_min ? "above" : "of at least", range.min);
  }
  if (std::isfinite(range.max)) {
    text += fmt::format(" and {} {}", range.below_max ? "below" : "at most", range.max);
  }
  return text;
}

struct RuleText {
  std::string operator()(const IntegerValue& v) const {
    return fmt::format("{}an integer from {} to {}", v.word.empty() ? "" : v.word + " or ", v.min,
                       v.max);
  }
  std::string operator()(const RealValue& v) const { return "a " + range_text(v.range); }
  std::string operator()(const RealPairValue& v) const {
    return "a list of two, each a " + range_text(v.range);
  }
  std::string operator()(const RealListValue& v) const {
    return "a list, each a " + range_text(v.range);
  }
  std::string operator()(const FlagValue&) const { return "true or false"; }
  std::string operator()(const FlagOrCountValue&) const {
    return "true or false or an integer of at least 1";
  }
  std::string operator()(const ChoiceValue& v) const {
    return fmt::format("{}", fmt::join(v.words, " or "));
  }
  std::string operator()(const TextValue& v) const {
    return (v.word.empty() ? "" : v.word + " or ") + v.what;
  }
  std::string operator()(const TextListValue&) const { return "a list of texts"; }
  std::string operator()(const PathListValue&) const { return "a list of paths"; }
  std::string operator()(const RealOrWordValue& v) const {
    return fmt::format("{} or a {}", fmt::join(v.words, " or "), range_text(v.range));
  }
  std::string operator()(const MapListValue& v) const {
    return fmt::format("a list of maps with the keys {}", fmt::join(v.keys, ", "));
  }
  std::string operator()(const OptionalMapValue& v) const {
    return fmt::format("{} or a map with the keys {}", v.word, fmt::join(v.keys, ", "));
  }
};

std::string map_text(const std::vector<Field>& fields) {
  std::vector<std::string> entries;
  for (const Field& field : fields)
    entries.push_back(fmt::format("{}: {}", field.name, value_text(field.value)));
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

struct ValueText {
  std::string operator()(const IntegerValue& v) const {
    const std::optional<int64_t> value = v.get();
    return value ? std::to_string(*value) : v.word;
  }
  std::string operator()(const RealValue& v) const { return real_text(*v.value); }
  std::string operator()(const RealPairValue& v) const {
    return fmt::format("[{}, {}]", real_text(*v.first), real_text(*v.second));
  }
  std::string operator()(const RealListValue& v) const {
    std::vector<std::string> items;
    for (const double item : *v.values) items.push_back(real_text(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  std::string operator()(const FlagValue& v) const { return *v.value ? "true" : "false"; }
  std::string operator()(const FlagOrCountValue& v) const {
    if (*v.value == v.when_true) return "true";
    return *v.value == v.when_false ? "false" : std::to_string(*v.value);
  }
  std::string operator()(const ChoiceValue& v) const {
    const int index = v.get();
    return index < 0 ? "(none of its words)" : v.words[static_cast<size_t>(index)];
  }
  std::string operator()(const TextValue& v) const {
    return v.value->empty() && !v.word.empty() ? v.word : yaml_scalar(*v.value);
  }
  std::string operator()(const PathValue& v) const {
    return v.value->empty() && !v.word.empty() ? v.word : yaml_scalar(path_as_written(*v.value));
  }
  std::string operator()(const TextListValue& v) const {
    std::vector<std::string> items;
    for (const std::string& item : *v.value) items.push_back(yaml_scalar(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  std::string operator()(const PathListValue& v) const {
    std::vector<std::string> items;
    for (const std::string& item : *v.value) items.push_back(yaml_scalar(path_as_written(item)));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  std::string operator()(const RealOrWordValue& v) const {
    const auto value = v.get();
    const double* number = std::get_if<double>(&value);
    return number ? real_text(*number) : v.words[std::get<size_t>(value)];
  }
  std::string operator()(const MapListValue& v) const {
    std::vector<std::string> items;
    for (size_t i = 0; i < v.size(); ++i) items.push_back(map_text(v.fields(i)));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  std::string operator()(const OptionalMapValue& v) const {
    return v.given() ? map_text(v.fields()) : v.word;
  }
};

}  // namespace

std::string rule_text(const FieldValue& value) {
  return std::visit(RuleText{}, value);
}

bool in_range(const RealRange& range, double value) {
  return std::isfinite(value) && (range.above_min ? value > range.min : value >= range.min) &&
         (range.below_max ? value < range.max : value <= range.max);
}

std::string value_text(const FieldValue& value) {
  return std::visit(ValueText{}, value);
}

std::string yaml_scalar(const std::string& text) {
  // Words and numbers that YAML 1.1 readers take for something else are quoted too.
  static const std::set<std::string> kReserved = {"null", "true", "false", "yes", "no",
                                                  "on",   "off",  "y",     "n"};
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/';
  };
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool starts_well =
      !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/' ||
                        text.starts_with("./") || text.starts_with("../"));
  if (starts_well && std::all_of(text.begin(), text.end(), plain) && !kReserved.contains(lower)) {
    return text;
  }
  return nlohmann::json(text).dump();  // JSON's strings are YAML's double-quoted ones
}

std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (!std::isfinite(value) || text.find('.') != std::string::npos) return text;
  return text.insert(std::min(text.find('e'), text.size()), ".0");
}

}  // namespace tessera

#include "config/keys/decode_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "base/files/path_text.h"
#include "base/text/odd_characters.h"
#include "config/keys/key_names.h"
#include "config/keys/meant.h"
#include "config/yaml/numbers.h"

namespace tessera {
namespace {

// Reads one node into a field, by the kind of its value.
struct Decode {
  const YamlNode& node;
  const std::string& path;
  const std::string& rule;
  Findings& findings;

  const std::string& scalar(const YamlNode& from) const {
    if (from.kind == YamlNode::Kind::kNull) {
      refuse(from, path, rule, "leave the key out to take the default");
    }
    if (from.kind != YamlNode::Kind::kScalar) refuse(from, path, rule);
    return from.scalar;
  }

  const std::string& unquoted(const YamlNode& from) const {
    const std::string& text = scalar(from);
    if (from.quoted) refuse(from, path, rule, "remove the quotes");
    return text;
  }

  // Refuses a value that can only be ASCII; names its characters that are not.
  [[noreturn]] void refuse_word(const YamlNode& from, const std::string& why,
                                const std::string& meant = "") const {
    const std::string note = odd_characters_note(from.scalar);
    std::vector<std::string> parts;
    for (const std::string& part : {note.empty() || meant.empty() ? why : "", note, meant})
      if (!part.empty()) parts.push_back(part);
    refuse(from, path, rule, fmt::format("{}", fmt::join(parts, "; ")));
  }

  double real(const YamlNode& from, const RealRange& range) const {
    const auto value = read_real(unquoted(from));
    if (const auto* why = std::get_if<std::string>(&value)) refuse_word(from, *why);
    if (!in_range(range, std::get<double>(value))) refuse(from, path, rule);
    return std::get<double>(value);
  }

  std::string text_of(const YamlNode& from) const {
    if (scalar(from).empty()) refuse(from, path, rule);
    return from.scalar;
  }

  std::string path_of(const YamlNode& from) const {
    ExpandedPath expanded = expand_path(text_of(from));
    if (!expanded.error.empty())
      throw Refusal{from.where, fmt::format("{}: {}; {}", path, shown(from), expanded.error)};
    return std::move(expanded.path);
  }

  template <typename Read>
  std::vector<std::string> list_of(Read read) const {
    if (node.kind != YamlNode::Kind::kSequence) {
      refuse(node, path, rule,
             node.kind == YamlNode::Kind::kScalar ? fmt::format("write [{}]", shown(node)) : "");
    }
    std::vector<std::string> texts;
    for (size_t i = 0; i < node.items.size(); ++i) {
      const YamlNode& item = node.items[i];
      findings.read(fmt::format("{}[{}]", path, i), item, [&] { texts.push_back(read(item)); });
    }
    return texts;
  }

  void operator()(IntegerValue& v) const {
    const std::string& text = unquoted(node);
    if (!v.word.empty() && text == v.word) {
      v.set(std::nullopt);
      return;
    }
    const auto value = read_integer(text);
    if (const auto* why = std::get_if<std::string>(&value)) {
      std::string meant;
      if (!v.word.empty()) meant = did_you_mean(meant_word(text, {v.word}));
      refuse_word(node, *why, meant);
    }
    const int64_t number = std::get<int64_t>(value);
    if (number < v.min || number > v.max) refuse(node, path, rule);
    v.set(number);
  }

  void operator()(RealValue& v) const { *v.value = real(node, v.range); }

  void operator()(RealPairValue& v) const {
    if (node.kind != YamlNode::Kind::kSequence) refuse(node, path, rule);
    if (node.items.size() != 2) {
      refuse(node, path, rule, fmt::format("this one has {}", node.items.size()));
    }
    *v.first = real(node.items[0], v.range);
    *v.second = real(node.items[1], v.range);
  }

  void operator()(RealListValue& v) const {
    if (node.kind != YamlNode::Kind::kSequence) refuse(node, path, rule);
    std::vector<double> values;
    for (const YamlNode& item : node.items) values.push_back(real(item, v.range));
    *v.values = std::move(values);
  }

  void operator()(FlagValue& v) const {
    const std::string& text = unquoted(node);
    if (text != "true" && text != "false") {
      static const Synonyms kOthers = {{"yes", "true"}, {"on", "true"},  {"y", "true"},
                                       {"1", "true"},   {"no", "false"}, {"off", "false"},
                                       {"n", "false"},  {"0", "false"},  {"none", "false"}};
      refuse_word(node, "", did_you_mean(meant_word(text, {"true", "false"}, kOthers)));
    }
    *v.value = text == "true";
  }

  void operator()(FlagOrCountValue& v) const {
    const std::string& text = unquoted(node);
    if (text == "true" || text == "false") {
      *v.value = text == "true" ? v.when_true : v.when_false;
      return;
    }
    const auto count = read_integer(text);
    if (const auto* why = std::get_if<std::string>(&count)) refuse_word(node, *why);
    if (std::get<int64_t>(count) < 1) refuse(node, path, rule);
    *v.value = std::get<int64_t>(count);
  }

  void operator()(ChoiceValue& v) const {
    const std::string& text = scalar(node);
    for (size_t i = 0; i < v.words.size(); ++i) {
      if (v.words[i] == text) {
        v.set(static_cast<int>(i));
        return;
      }
    }
    refuse_word(node, "", did_you_mean(meant_word(text, v.words, v.synonyms)));
  }

  void operator()(TextValue& v) const {
    const std::string text = text_of(node);
    *v.value = !v.word.empty() && text == v.word ? "" : text;
  }

  void operator()(PathValue& v) const {
    *v.value = !v.word.empty() && scalar(node) == v.word ? "" : path_of(node);
  }

  void operator()(TextListValue& v) const {
    *v.value = list_of([&](const YamlNode& item) { return text_of(item); });
  }

  void operator()(PathListValue& v) const {
    *v.value = list_of([&](const YamlNode& item) { return path_of(item); });
  }

  void operator()(RealOrWordValue& v) const {
    const std::string& text = unquoted(node);
    const auto word = std::find(v.words.begin(), v.words.end(), text);
    if (word != v.words.end()) {
      v.set(static_cast<size_t>(word - v.words.begin()));
      return;
    }
    const std::string meant = meant_word(text, v.words);
    if (!meant.empty()) refuse_word(node, "", did_you_mean(meant));
    v.set(real(node, v.range));
  }

  void operator()(MapListValue& v) const {
    if (node.kind != YamlNode::Kind::kSequence) {
      refuse(node, path, rule, node.kind == YamlNode::Kind::kMap ? "write [{...}]" : "");
    }
    v.resize(node.items.size());
    for (size_t i = 0; i < node.items.size(); ++i) {
      std::vector<Field> fields = v.fields(i);
      const std::string item = fmt::format("{}[{}]", path, i);
      findings.read(item, node.items[i],
                    [&] { decode_map(node.items[i], item, fields, findings); });
    }
  }

  void operator()(OptionalMapValue& v) const {
    if (node.kind != YamlNode::Kind::kMap) {
      const std::string& text = unquoted(node);
      if (text != v.word) refuse_word(node, "", did_you_mean(meant_word(text, {v.word})));
      return v.give(false);
    }
    v.give(true);
    std::vector<Field> fields = v.fields();
    decode_map(node, path, fields, findings);
  }

  // A map of exactly these fields.
  static void decode_map(const YamlNode& map, const std::string& map_path,
                         std::vector<Field>& fields, Findings& findings) {
    KeyNames keys;
    for (const Field& field : fields) keys.add(field, field.name, /*listed=*/true);
    if (map.kind != YamlNode::Kind::kMap) {
      refuse(map, map_path, fmt::format("a map with the keys {}", fmt::join(keys.own, ", ")));
    }
    std::vector<std::string> missing;
    for (const YamlEntry& entry : map.entries) {
      if (entry.refused) continue;
      const auto field = std::find_if(fields.begin(), fields.end(),
                                      [&](const Field& f) { return f.name == entry.key; });
      const std::string field_path = map_path + "." + entry.key;
      if (field == fields.end()) {
        findings.refuse(field_path, entry.where,
                        unknown_key(field_path, entry.key, keys.target_of(entry.key, false),
                                    "keys of " + map_path, keys.own));
        continue;
      }
      findings.read(field_path, entry.value,
                    [&] { decode_value(entry.value, field_path, findings, field->value); });
    }
    for (const Field& field : fields) {
      const auto given = [&](const YamlEntry& e) { return e.key == field.name; };
      if (field.required && std::none_of(map.entries.begin(), map.entries.end(), given))
        missing.push_back(map_path + "." + field.name);
    }
    if (!missing.empty())
      throw Refusal{map.where,
                    fmt::format("{} missing; it has no default", fmt::join(missing, ", "))};
  }
};

}  // namespace

void decode_value(const YamlNode& node, const std::string& path, Findings& findings,
                  FieldValue& value) {
  const std::string rule = rule_text(value);
  std::visit(Decode{node, path, rule, findings}, value);
}

}  // namespace tessera

#include "config/decode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "config/fields.h"
#include "config/nearest.h"
#include "config/numbers.h"
#include "models/dropout_keys.h"

namespace tessera {
namespace {

// A node as messages show it.
std::string shown(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return node.quoted ? '"' + node.scalar + '"' : node.scalar;
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
  }
  return "";
}

[[noreturn]] void refuse(const YamlNode& node, const std::string& path, const std::string& rule,
                         const std::string& why = "") {
  fail_user("config", "{}: {}: {}; must be {}{}{}", node.where, path, shown(node), rule,
            why.empty() ? "" : "; ", why);
}

// Reads one node into a field, by the kind of its value.
struct Decode {
  const YamlNode& node;
  const std::string& path;
  const std::string& rule;

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

  double real(const YamlNode& from, const RealRange& range) const {
    const auto value = read_real(unquoted(from));
    if (const auto* why = std::get_if<std::string>(&value)) refuse(from, path, rule, *why);
    if (!in_range(range, std::get<double>(value))) refuse(from, path, rule);
    return std::get<double>(value);
  }

  void operator()(IntegerValue& v) const {
    const std::string& text = unquoted(node);
    if (!v.word.empty() && text == v.word) {
      v.set(std::nullopt);
      return;
    }
    const auto value = read_integer(text);
    if (const auto* why = std::get_if<std::string>(&value)) refuse(node, path, rule, *why);
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
    if (text != "true" && text != "false") refuse(node, path, rule);
    *v.value = text == "true";
  }

  void operator()(FlagOrCountValue& v) const {
    const std::string& text = unquoted(node);
    if (text == "true" || text == "false") {
      *v.value = text == "true" ? v.when_true : v.when_false;
      return;
    }
    const auto count = read_integer(text);
    if (const auto* why = std::get_if<std::string>(&count)) refuse(node, path, rule, *why);
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
    const int near = nearest(text, v.words);
    refuse(node, path, rule,
           near < 0 ? "" : fmt::format("did you mean {}?", v.words[static_cast<size_t>(near)]));
  }

  void operator()(TextValue& v) const {
    const std::string& text = scalar(node);
    if (text.empty()) refuse(node, path, rule);
    *v.value = !v.word.empty() && text == v.word ? "" : text;
  }

  void operator()(TextListValue& v) const {
    if (node.kind != YamlNode::Kind::kSequence) {
      refuse(node, path, rule,
             node.kind == YamlNode::Kind::kScalar ? fmt::format("write [{}]", shown(node)) : "");
    }
    std::vector<std::string> texts;
    for (const YamlNode& item : node.items) {
      if (scalar(item).empty()) refuse(item, path, rule);
      texts.push_back(item.scalar);
    }
    *v.value = std::move(texts);
  }

  void operator()(RealOrWordValue& v) const {
    const std::string& text = unquoted(node);
    const auto word = std::find(v.words.begin(), v.words.end(), text);
    if (word != v.words.end()) {
      v.set(static_cast<size_t>(word - v.words.begin()));
      return;
    }
    const int near = nearest(text, v.words);
    if (near >= 0) {
      refuse(node, path, rule, fmt::format("did you mean {}?", v.words[static_cast<size_t>(near)]));
    }
    v.set(real(node, v.range));
  }

  void operator()(MapListValue& v) const {
    if (node.kind != YamlNode::Kind::kSequence) {
      refuse(node, path, rule, node.kind == YamlNode::Kind::kMap ? "write [{...}]" : "");
    }
    v.resize(node.items.size());
    for (size_t i = 0; i < node.items.size(); ++i) {
      std::vector<Field> fields = v.fields(i);
      decode_map(node.items[i], fmt::format("{}[{}]", path, i), fields);
    }
  }

  // A map of exactly these fields.
  static void decode_map(const YamlNode& map, const std::string& map_path,
                         std::vector<Field>& fields) {
    std::vector<std::string> names, targets, own;
    for (const Field& field : fields) {
      own.push_back(field.name);
      names.push_back(field.name);
      names.insert(names.end(), field.aliases.begin(), field.aliases.end());
      targets.resize(names.size(), field.name);
    }
    if (map.kind != YamlNode::Kind::kMap) {
      refuse(map, map_path, fmt::format("a map with the keys {}", fmt::join(own, ", ")));
    }
    std::vector<std::string> missing;
    for (const YamlEntry& entry : map.entries) {
      const auto field = std::find_if(fields.begin(), fields.end(),
                                      [&](const Field& f) { return f.name == entry.key; });
      const std::string field_path = map_path + "." + entry.key;
      if (field == fields.end()) {
        const int near = nearest(entry.key, names);
        fail_user(
            "config", "{}: {}: unknown key; {}keys of {}: {}", entry.where, field_path,
            near < 0 ? "" : fmt::format("did you mean {}? ", targets[static_cast<size_t>(near)]),
            map_path, fmt::join(own, ", "));
      }
      const std::string field_rule = rule_text(field->value);
      std::visit(Decode{entry.value, field_path, field_rule}, field->value);
    }
    for (const Field& field : fields) {
      const auto given = [&](const YamlEntry& e) { return e.key == field.name; };
      if (field.required && std::none_of(map.entries.begin(), map.entries.end(), given))
        missing.push_back(map_path + "." + field.name);
    }
    if (!missing.empty()) {
      fail_user("config", "{}: {} missing; it has no default", map.where, fmt::join(missing, ", "));
    }
  }
};

const YamlEntry* find(const YamlNode& map, const std::string& key) {
  for (const YamlEntry& entry : map.entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

class Decoder {
 public:
  Decoder(const YamlNode& root, const std::filesystem::path& base)
      : root_(root), base_(base), sections_(describe(config_)) {}

  Config decode() {
    if (root_.kind == YamlNode::Kind::kNull) {
      fail_user("config", "{}: empty configuration; docs/configuration.md lists the keys",
                root_.where);
    }
    if (root_.kind != YamlNode::Kind::kMap) {
      fail_user("config", "{}: {}; a configuration is a map of sections such as `model:`",
                root_.where, shown(root_));
    }
    for (const YamlEntry& entry : root_.entries) decode_entry(entry);
    // A model from a config.json has all its keys.
    // Described anew, because some keys are required by the values of others.
    for (const Section& section : describe(config_)) {
      if (section.name != "model" || !model_from_file_) require(section);
    }
    config_.model->complete();
    return std::move(config_);
  }

 private:
  void decode_entry(const YamlEntry& entry) {
    for (Section& section : sections_) {
      if (section.name.empty()) {
        for (Field& field : section.fields) {
          if (field.name == entry.key) return decode_field(section, field, entry.value);
        }
      } else if (section.name == entry.key) {
        return decode_section(section, entry.value);
      }
    }
    unknown(entry, "");
  }

  void decode_section(Section& section, const YamlNode& node) {
    if (node.kind != YamlNode::Kind::kMap) {
      const bool glued =
          node.kind == YamlNode::Kind::kScalar && node.scalar.find(':') != std::string::npos;
      refuse(node, section.name, "a map of keys",
             glued                                ? "a space is missing after the colon"
             : node.kind == YamlNode::Kind::kNull ? "leave the section out to take the defaults"
                                                  : "");
    }
    if (section.name == "model") choose_model(node);
    for (const YamlEntry& entry : node.entries) {
      if (section.name == "model" && entry.key == "config") continue;
      const auto field = std::find_if(section.fields.begin(), section.fields.end(),
                                      [&](const Field& f) { return f.name == entry.key; });
      if (field == section.fields.end()) unknown(entry, section.name);
      decode_field(section, *field, entry.value);
    }
  }

  void decode_field(const Section& section, Field& field, const YamlNode& node) {
    const std::string path = section.path(field);
    std::visit(Decode{node, path, rule_text(field.value)}, field.value);
    seen_.push_back(path);
  }

  // The model comes first, since it decides which keys its section has.
  void choose_model(const YamlNode& node) {
    if (find(node, "config") != nullptr) {
      read_model_file(node);
    } else if (const YamlEntry* type = find(node, "type")) {
      Section& section = model_section();
      decode_field(section, section.fields.front(), type->value);
    } else {
      fail_user("config",
                "{}: model.type missing; it has no default (or give model.config alone): {}",
                node.where, fmt::join(model_types(), ", "));
    }
    model_section() = [&] {
      for (Section& section : describe(config_))
        if (section.name == "model") return std::move(section);
      fail("config", "describe() has no section model");
    }();
  }

  Section& model_section() {
    return *std::find_if(sections_.begin(), sections_.end(),
                         [](const Section& section) { return section.name == "model"; });
  }

  void read_model_file(const YamlNode& node) {
    const YamlNode& value = find(node, "config")->value;
    const std::string rule = "the path of a Hugging Face config.json";
    std::string text;
    TextValue field{&text, "", rule};
    Decode{value, "model.config", rule}(field);
    const std::filesystem::path path = value.from_file ? base_ / text : std::filesystem::path(text);
    try {
      config_.model = read_hf_model(path);
    } catch (const UserError& error) {
      // The file's own message, with the place that named it.
      throw UserError(fmt::format("{} (model.config at {})", error.what(), value.where));
    }
    model_from_file_ = true;
    std::vector<std::string> allowed;
    for (const Field& key : config_.model->fields())
      if (is_dropout_key(key.name)) allowed.push_back(key.name);
    for (const YamlEntry& entry : node.entries) {
      if (entry.key == "config" ||
          std::find(allowed.begin(), allowed.end(), entry.key) != allowed.end())
        continue;
      fail_user(
          "config",
          "{}: model.{}: beside model.config; the model comes from that file{}; remove one of "
          "the two",
          entry.where, entry.key,
          allowed.empty()
              ? " alone"
              : fmt::format(", which leaves only {} to be set", fmt::join(allowed, " and ")));
    }
  }

  bool seen(const std::string& path) const {
    return std::find(seen_.begin(), seen_.end(), path) != seen_.end();
  }

  void require(const Section& section) const {
    std::vector<std::string> missing;
    for (const Field& field : section.fields) {
      if (field.required && !seen(section.path(field))) missing.push_back(section.path(field));
    }
    if (missing.empty()) return;
    const YamlEntry* entry = find(root_, section.name);
    fail_user("config", "{}: {} missing; {} no default{}", entry ? entry->where : root_.where,
              fmt::join(missing, ", "), missing.size() == 1 ? "it has" : "they have",
              section.name == "model" ? " (or give model.config alone)" : "");
  }

  [[noreturn]] void unknown(const YamlEntry& entry, const std::string& section_name) const {
    // Names near at hand first: this section's keys, then every path, each with its aliases.
    std::vector<std::string> names, targets, own;
    for (const Section& section : sections_) {
      if (section.name != section_name) {
        if (section_name.empty() && !section.name.empty()) {
          names.push_back(section.name);
          targets.push_back(section.name);
          own.push_back(section.name);
        }
        continue;
      }
      for (const Field& field : section.fields) collect(section, field, names, targets, &own);
    }
    int near = nearest(entry.key, names);
    if (near < 0) {
      for (const Section& section : sections_) {
        for (const Field& field : section.fields) collect(section, field, names, targets, nullptr);
      }
      near = nearest(entry.key, names);
    }
    const std::string path = section_name.empty() ? entry.key : section_name + "." + entry.key;
    const std::string hint =
        near < 0 ? "" : fmt::format("did you mean {}? ", targets[static_cast<size_t>(near)]);
    fail_user("config", "{}: {}: unknown key; {}{}: {}", entry.where, path, hint,
              section_name.empty() ? "sections" : "keys of " + section_name, fmt::join(own, ", "));
  }

  static void collect(const Section& section, const Field& field, std::vector<std::string>& names,
                      std::vector<std::string>& targets, std::vector<std::string>* own) {
    names.push_back(field.name);
    names.insert(names.end(), field.aliases.begin(), field.aliases.end());
    targets.resize(names.size(), section.path(field));
    if (own) own->push_back(field.name);
  }

  Config config_;
  const YamlNode& root_;
  const std::filesystem::path& base_;
  std::vector<Section> sections_;  // bound to config_
  std::vector<std::string> seen_;  // paths that were given
  bool model_from_file_ = false;
};

}  // namespace

Config decode_config(const YamlNode& root, const std::filesystem::path& base) {
  return Decoder(root, base).decode();
}

}  // namespace tessera

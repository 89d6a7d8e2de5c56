#include "config/decode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/path_text.h"
#include "base/text/error_text.h"
#include "base/text/odd_characters.h"
#include "config/keys/fields.h"
#include "config/keys/meant.h"
#include "config/yaml/numbers.h"

namespace tessera {
namespace {

// A node as messages show it.
std::string shown(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return node.quoted ? '"' + start_of_text(node.scalar) + '"' : start_of_text(node.scalar);
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
  }
  return "";
}

// What ends the reading of one value.
struct Refusal {
  Place place;
  std::string message;
};

[[noreturn]] void refuse(const YamlNode& node, const std::string& path, const std::string& rule,
                         const std::string& why = "") {
  throw Refusal{node.where, fmt::format("{}: {}; must be {}{}{}", path, shown(node), rule,
                                        why.empty() ? "" : "; ", why)};
}

std::string did_you_mean(const std::string& word) {
  return word.empty() ? "" : fmt::format("did you mean {}?", word);
}

// Where the reading of a configuration puts what it finds.
struct Findings {
  KeyPlaces& places;
  Mistakes& mistakes;

  void refuse(const std::string& path, const Place& place, std::string message) {
    mistakes.add(place, std::move(message));
    places.refuse(path);
  }

  // Runs `read`; what it refuses is a mistake of `path`.
  template <typename Read>
  void read(const std::string& path, const YamlNode& node, Read read) {
    places.give(path, node.where);
    if (node.refused) {
      places.refuse(path);
      return;
    }
    try {
      read();
    } catch (const Refusal& refusal) {
      refuse(path, refusal.place, refusal.message);
    }
  }
};

// What keys there are, with the names that others give them, for "did you mean".
struct KeyNames {
  std::vector<std::string> own;  // as they are listed
  std::vector<std::string> names, targets;

  void add(const Field& field, const std::string& target, bool listed) {
    names.push_back(field.name);
    names.insert(names.end(), field.aliases.begin(), field.aliases.end());
    targets.resize(names.size(), target);
    if (listed) own.push_back(field.name);
  }
  // By exactly this name, or by one that is near.
  std::string target_of(const std::string& key, bool exactly) const {
    if (!exactly) {
      const std::string name = meant_word(key, names);
      return name.empty() ? "" : target_of(name, true);
    }
    const auto found = std::find(names.begin(), names.end(), key);
    return found == names.end() ? "" : targets[static_cast<size_t>(found - names.begin())];
  }
};

std::string unknown_key(const std::string& path, const std::string& key, const std::string& target,
                        const std::string& keys_of, const std::vector<std::string>& own) {
  const std::string note = odd_characters_note(key);
  std::string hint = did_you_mean(target);
  if (const std::string_view instead = instead_of(key); !instead.empty()) hint = instead;
  return fmt::format("{}: unknown key{}{}; {}{}{}: {}", path, note.empty() ? "" : "; ", note, hint,
                     hint.empty()          ? ""
                     : hint.ends_with('?') ? " "
                                           : "; ",
                     keys_of, fmt::join(own, ", "));
}

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

  // For what can only be ASCII.
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
      const std::string field_rule = rule_text(field->value);
      findings.read(field_path, entry.value, [&] {
        std::visit(Decode{entry.value, field_path, field_rule, findings}, field->value);
      });
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

const YamlEntry* find(const YamlNode& map, const std::string& key) {
  for (const YamlEntry& entry : map.entries) {
    if (entry.key == key && !entry.refused) return &entry;
  }
  return nullptr;
}

class Decoder {
 public:
  Decoder(const YamlNode& root, const std::filesystem::path& base, KeyPlaces& places,
          Mistakes& mistakes)
      : root_(root), base_(base), findings_{places, mistakes}, sections_(describe(config_)) {}

  Config decode() {
    if (root_.kind == YamlNode::Kind::kNull) {
      findings_.mistakes.fail(root_.where,
                              "empty configuration; docs/configuration.md lists the keys");
    }
    if (root_.kind != YamlNode::Kind::kMap) {
      findings_.mistakes.fail(
          root_.where,
          fmt::format("{}; a configuration is a map of sections such as `model:`", shown(root_)));
    }
    for (const YamlEntry& entry : root_.entries)
      if (!entry.refused) decode_entry(entry);
    // Described anew, because some keys are required by the values of others.
    for (const Section& section : describe(config_)) require(section);
    if (!findings_.places.refused("model")) config_.model->complete();
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
        findings_.read(section.name, entry.value, [&] { decode_section(section, entry.value); });
        findings_.places.give(section.name, entry.where);
        return;
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
      if (entry.refused || (section.name == "model" && entry.key == "config")) continue;
      const auto field = std::find_if(section.fields.begin(), section.fields.end(),
                                      [&](const Field& f) { return f.name == entry.key; });
      if (field == section.fields.end())
        unknown(entry, section.name);
      else if (!beside_model_file(section, *field))
        findings_.refuse(section.path(*field), entry.where, beside_model_file_text(*field));
      else
        decode_field(section, *field, entry.value);
    }
  }

  void decode_field(const Section& section, Field& field, const YamlNode& node) {
    const std::string path = section.path(field), rule = rule_text(field.value);
    findings_.read(path, node, [&] {
      std::visit(Decode{node, path, rule, findings_}, field.value);
    });
  }

  // The model comes first, since it decides which keys its section has. Throws where it is not
  // known, since then its other keys are not either.
  void choose_model(const YamlNode& node) {
    if (const YamlEntry* file = find(node, "config")) {
      read_model_file(file->value);
    } else if (const YamlEntry* type = find(node, "type")) {
      Section& section = model_section();
      const std::string path = "model.type", rule = rule_text(section.fields.front().value);
      findings_.places.give(path, type->value.where);
      if (type->value.refused) {
        findings_.places.refuse("model");
        return;
      }
      std::visit(Decode{type->value, path, rule, findings_}, section.fields.front().value);
    } else {
      throw Refusal{
          node.where,
          fmt::format("model.type missing; it has no default (or give model.config alone): {}",
                      fmt::join(model_types(), ", "))};
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

  void read_model_file(const YamlNode& value) {
    const std::string rule = "the path of a Hugging Face config.json", path = "model.config";
    findings_.places.give(path, value.where);
    if (value.refused) {
      findings_.places.refuse("model");
      return;
    }
    std::string text;
    PathValue field{{&text, "", rule}};
    Decode{value, path, rule, findings_}(field);
    const std::filesystem::path file =
        value.where.overrides ? std::filesystem::path(text) : base_ / text;
    try {
      config_.model = read_hf_model(file);
    } catch (const UserError& error) {
      // The file's own message, with the place that named it.
      Place in_order = value.where;
      in_order.text.clear();
      throw Refusal{in_order, fmt::format("{} (model.config at {})",
                                          without_subsystem(error.what()), value.where.text)};
    }
    model_from_file_ = true;
  }

  // What the weights mean does not depend on these.
  bool beside_model_file(const Section& section, const Field& field) const {
    return section.name != "model" || !model_from_file_ ||
           config_.model->role_of(field.name) == KeyRole::kDropoutRate;
  }
  std::string beside_model_file_text(const Field& field) const {
    const std::vector<std::string> allowed = config_.model->keys_of(KeyRole::kDropoutRate);
    return fmt::format(
        "model.{}: beside model.config; the model comes from that file{}; remove one of the two",
        field.name,
        allowed.empty()
            ? " alone"
            : fmt::format(", which leaves only {} to be set", fmt::join(allowed, " and ")));
  }

  void require(const Section& section) {
    // A model from a config.json has all its keys; one that is not known has none.
    const KeyPlaces& places = findings_.places;
    if (section.name == "model" && (model_from_file_ || is_refused_whole("model"))) return;
    if (is_refused_whole(section.name)) return;
    if (section.name == "data" && places.refused("data.kind") && places.find("data.kind")) return;
    std::vector<std::string> missing;
    for (const Field& field : section.fields) {
      const std::string path = section.path(field);
      if (!field.required || places.find(path)) continue;
      if (meant_.contains(path))
        findings_.places.refuse(path);  // told already
      else
        missing.push_back(path);
    }
    if (missing.empty()) return;
    const YamlEntry* entry = find(root_, section.name);
    findings_.mistakes.add(
        entry ? entry->where : root_.where,
        fmt::format("{} missing; {} no default{}", fmt::join(missing, ", "),
                    missing.size() == 1 ? "it has" : "they have",
                    section.name == "model" ? " (or give model.config alone)" : ""));
    for (const std::string& path : missing) findings_.places.refuse(path);
  }

  // Not just one of its keys.
  bool is_refused_whole(const std::string& section) const {
    return !section.empty() && findings_.places.refused(section + ".?");
  }

  void unknown(const YamlEntry& entry, const std::string& section_name) {
    // Names near at hand first: this section's keys, then every path, each with its aliases; but
    // before a name that is merely near comes one that is exactly this elsewhere.
    KeyNames here, all;
    for (const Section& section : sections_) {
      if (section_name.empty() && !section.name.empty()) {
        here.names.push_back(section.name);
        here.targets.push_back(section.name);
        here.own.push_back(section.name);
      }
      for (const Field& field : section.fields) {
        if (section.name == section_name) here.add(field, section.path(field), /*listed=*/true);
        all.add(field, section.path(field), /*listed=*/false);
      }
    }
    std::string target;
    for (const bool exactly : {true, false})
      for (const KeyNames* keys : {&here, &all})
        if (target.empty()) target = keys->target_of(entry.key, exactly);
    meant_.insert(target);
    const std::string path = section_name.empty() ? entry.key : section_name + "." + entry.key;
    findings_.refuse(
        path, entry.where,
        unknown_key(path, entry.key, target,
                    section_name.empty() ? "sections" : "keys of " + section_name, here.own));
  }

  Config config_;
  const YamlNode& root_;
  const std::filesystem::path& base_;
  Findings findings_;
  std::vector<Section> sections_;  // bound to config_
  std::set<std::string> meant_;    // keys that unknown ones probably stand for
  bool model_from_file_ = false;
};

}  // namespace

Config decode_config(const YamlNode& root, const std::filesystem::path& base, KeyPlaces& places,
                     Mistakes& mistakes) {
  return Decoder(root, base, places, mistakes).decode();
}

}  // namespace tessera

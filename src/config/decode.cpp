#include "config/decode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text/error_text.h"
#include "config/keys/decode_value.h"
#include "config/keys/fields.h"
#include "config/keys/findings.h"
#include "config/keys/key_names.h"

namespace tessera {
namespace {

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
    const std::string path = section.path(field);
    findings_.read(path, node, [&] { decode_value(node, path, findings_, field.value); });
  }

  // The model comes first, since it decides which keys its section has. Throws where it is not
  // known, since then its other keys are not either.
  void choose_model(const YamlNode& node) {
    if (const YamlEntry* file = find(node, "config")) {
      read_model_file(file->value);
    } else if (const YamlEntry* type = find(node, "type")) {
      Section& section = model_section();
      const std::string path = "model.type";
      findings_.places.give(path, type->value.where);
      if (type->value.refused) {
        findings_.places.refuse("model");
        return;
      }
      decode_value(type->value, path, findings_, section.fields.front().value);
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
    const std::string path = "model.config";
    findings_.places.give(path, value.where);
    if (value.refused) {
      findings_.places.refuse("model");
      return;
    }
    std::string text;
    FieldValue field = PathValue{{&text, "", "the path of a Hugging Face config.json"}};
    decode_value(value, path, findings_, field);
    const std::filesystem::path file =
        value.where.overrides ? std::filesystem::path(text) : base_ / text;
    try {
      config_.model = read_hf_model(file);
    } catch (const UserError& error) {
      // The file's own message, with the place that named it.
      TextPlace in_order = value.where;
      in_order.text.clear();
      throw Refusal{in_order, fmt::format("{} (model.config at {})",
                                          without_subsystem(error.what()), value.where.text)};
    }
    model_from_file_ = true;
  }

  // Whether a key may stand beside model.config: keys of other sections, and dropout, on which the
  // meaning of the weights does not depend.
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

  // Whether all of the section could not be read, not just one of its keys.
  bool is_refused_whole(const std::string& section) const {
    return !section.empty() && findings_.places.refused(section + ".?");
  }

  void unknown(const YamlEntry& entry, const std::string& section_name) {
    // Suggests, in this order: a key of this section (of the top level: or a section) with exactly
    // this name or alias, such a key of any section, a near name in this section, a near name in
    // any section.
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

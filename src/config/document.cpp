#include "config/document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/keys/fields.h"
#include "config/rules/resume.h"

namespace tessera {
namespace {

std::string default_text(const Field& field) {
  if (field.required) return "required";
  if (!field.follows.empty()) return "as " + field.follows;
  return value_text(field.value);
}

const char* resume_text(const std::string& key, const Field& field, const Model& model) {
  if (field.on_resume == OnResume::kFree) return "free";
  return why_fixed(key, model).empty() ? "on request" : "fixed";
}

struct Row {
  std::string name;  // groups[].params for a key of a list's maps, inject.rank for one of a map
  std::string rule;
  std::string fallback;
  std::string resume;
  std::string doc;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(const Section& section, const Model& model) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& prefix, const Field& field) {
    rows.push_back({prefix + field.name, rule_text(field.value), default_text(field),
                    resume_text(section.path(field), field, model), field.doc});
  };
  for (const Field& field : section.fields) {
    add("", field);
    if (const auto* list = std::get_if<MapListValue>(&field.value)) {
      list->resize(1);  // an item with the defaults
      for (const Field& inner : list->fields(0)) add(field.name + "[].", inner);
      list->resize(0);
    }
    if (const auto* map = std::get_if<OptionalMapValue>(&field.value)) {
      map->give(true);  // one with the defaults
      for (const Field& inner : map->fields()) add(field.name + ".", inner);
      map->give(false);
    }
  }
  return rows;
}

// The keys of all models in one list; the meaning of a key that not all have begins with those that
// do.
std::vector<Row> model_rows() {
  std::vector<std::pair<Row, std::vector<std::string>>> found;
  for (const std::string& type : model_types()) {
    Config config;
    config.model = AnyModel(make_model(type));
    for (const Section& section : describe(config)) {
      if (section.name != "model") continue;
      for (Row& row : rows_of(section, *config.model)) {
        const auto same = std::find_if(found.begin(), found.end(),
                                       [&](const auto& other) { return other.first == row; });
        if (same != found.end()) {
          same->second.push_back(type);
        } else {
          found.push_back({std::move(row), {type}});
        }
      }
    }
  }
  std::vector<Row> rows;
  for (auto& [row, types] : found) {
    if (types.size() < model_types().size())
      row.doc = fmt::format("{}: {}", fmt::join(types, ", "), row.doc);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Row> documented_rows(const Section& section, const Model& model) {
  return section.name == "model" ? model_rows() : rows_of(section, model);
}

}  // namespace

std::string keys_markdown() {
  Config defaults;
  std::string text = "\n";
  for (const Section& section : describe(defaults)) {
    text += section.name.empty() ? "### Top level\n\n"
                                 : fmt::format("### `{}`\n\n{}\n\n", section.name, section.doc);
    text += "| Key | Value | Default | On resume | Meaning |\n|---|---|---|---|---|\n";
    for (const Row& row : documented_rows(section, *defaults.model)) {
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.name, row.rule, row.fallback,
                          row.resume, row.doc);
    }
    if (section.name == "model") {
      text +=
          "| `config` | path of a Hugging Face `config.json` |  | fixed | Takes the whole model "
          "from that file, in place of all keys above (those of dropout may stand "
          "beside it). |\n";
    }
    text += "\n";
  }
  return text;
}

std::string keys_text() {
  Config defaults;
  std::string text;
  for (const Section& section : describe(defaults)) {
    for (const Row& row : documented_rows(section, *defaults.model)) {
      const std::string path = section.name.empty() ? row.name : section.name + "." + row.name;
      text += fmt::format("{:<28} {}\n{:<28} {}; default: {}\n", path, row.doc, "", row.rule,
                          row.fallback);
    }
  }
  return text;
}

}  // namespace tessera

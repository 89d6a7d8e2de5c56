#include "config/document.h"

#include <fmt/format.h>

#include "config/fields.h"

namespace tessera {
namespace {

std::string default_text(const Section& section, const Field& field) {
  if (field.required) return "required";
  // The one default that follows from another key.
  if (section.path(field) == "model.num_key_value_heads") return "as num_attention_heads";
  return value_text(field.value);
}

const char* resume_text(const Field& field) {
  return field.on_resume == OnResume::kMathematics ? "fixed" : "free";
}

struct Row {
  std::string name;  // groups[].params for a key of a list's maps
  std::string rule;
  std::string fallback;
  std::string resume;
  std::string doc;
};

std::vector<Row> rows_of(const Section& section) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& prefix, const Field& field) {
    rows.push_back({prefix + field.name, rule_text(field.value), default_text(section, field),
                    resume_text(field), field.doc});
  };
  for (const Field& field : section.fields) {
    add("", field);
    if (const auto* list = std::get_if<MapListValue>(&field.value)) {
      list->resize(1);  // an item with the defaults
      for (const Field& inner : list->fields(0)) add(field.name + "[].", inner);
      list->resize(0);
    }
  }
  return rows;
}

}  // namespace

std::string keys_markdown() {
  Config defaults;
  std::string text = "\n";
  for (const Section& section : describe(defaults)) {
    text += section.name.empty() ? "### Top level\n\n"
                                 : fmt::format("### `{}`\n\n{}\n\n", section.name, section.doc);
    text += "| Key | Value | Default | On resume | Meaning |\n|---|---|---|---|---|\n";
    for (const Row& row : rows_of(section)) {
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.name, row.rule, row.fallback,
                          row.resume, row.doc);
    }
    if (section.name == "model") {
      text +=
          "| `config` | path of a Hugging Face `config.json` |  | fixed | Takes the whole model "
          "from that file, in place of all keys above. |\n";
    }
    text += "\n";
  }
  return text;
}

std::string keys_text() {
  Config defaults;
  std::string text;
  for (const Section& section : describe(defaults)) {
    for (const Row& row : rows_of(section)) {
      const std::string path = section.name.empty() ? row.name : section.name + "." + row.name;
      text += fmt::format("{:<28} {}\n{:<28} {}; default: {}\n", path, row.doc, "", row.rule,
                          row.fallback);
    }
  }
  return text;
}

}  // namespace tessera

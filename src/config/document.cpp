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

}  // namespace

std::string keys_markdown() {
  Config defaults;
  std::string text = "\n";
  for (const Section& section : describe(defaults)) {
    text += section.name.empty() ? "### Top level\n\n"
                                 : fmt::format("### `{}`\n\n{}\n\n", section.name, section.doc);
    text += "| Key | Value | Default | On resume | Meaning |\n|---|---|---|---|---|\n";
    for (const Field& field : section.fields) {
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", field.name, rule_text(field.value),
                          default_text(section, field), resume_text(field), field.doc);
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
    for (const Field& field : section.fields) {
      text += fmt::format("{:<28} {}\n{:<28} {}; default: {}\n", section.path(field), field.doc, "",
                          rule_text(field.value), default_text(section, field));
    }
  }
  return text;
}

}  // namespace tessera

#include "config/load.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/text/odd_characters.h"
#include "config/decode.h"
#include "config/yaml/yaml_tree.h"

namespace tessera {
namespace {

std::string read_text(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    fail_user("config", "{}: is a folder; a configuration is a YAML file", file.string());
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) fail_user("config", "{}: cannot be opened: {}", file.string(), std::strerror(errno));
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) fail_user("config", "{}: cannot be read", file.string());
  return text.str();
}

// Puts `value` at section.key (or at a section or top-level key); a later override wins.
void apply_override(YamlNode& root, const std::string& text, Mistakes& mistakes) {
  const size_t equals = text.find('=');
  const auto place_of = [](const std::string& what) {
    return TextPlace{"--set " + visible_text(what), 0, 0, /*overrides=*/true};
  };
  if (equals == std::string::npos || equals == 0)
    return mistakes.add(place_of(text), "must be KEY=VALUE, such as training.steps=100");
  const std::string path = text.substr(0, equals);
  const TextPlace where = place_of(path);
  const std::string value_text = text.substr(equals + 1);
  if (const std::string why = why_not_text(path); !why.empty()) return mistakes.add(where, why);
  if (value_text.find(" #") != std::string::npos && value_text.find_first_of("\"'") != 0)
    return mistakes.add(
        where,
        fmt::format("'{}': a # after a space would begin a comment; quote the value", value_text));
  const YamlWhere everywhere = [&](int, int) { return where; };
  Mistakes own;
  YamlNode value;
  try {
    value = parse_yaml(value_text, everywhere, own);
  } catch (const UserError&) {
    value.refused = true;  // and `own` says why
  }
  mistakes.take(own);
  value.where = where;

  YamlNode* node = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, dot - begin);
    begin = dot + 1;
    if (node->kind != YamlNode::Kind::kMap)
      return mistakes.add(where,
                          fmt::format("{} is not a section", path.substr(0, dot - key.size() - 1)));
    auto entry = node->entries.begin();
    while (entry != node->entries.end() && (entry->key != key || entry->refused)) ++entry;
    if (entry == node->entries.end()) {
      YamlEntry added{key, where, {}};
      added.value.kind = YamlNode::Kind::kMap;
      added.value.where = where;
      entry = node->entries.insert(entry, std::move(added));
    }
    node = &entry->value;
  }
  *node = std::move(value);
}

}  // namespace

LoadedConfig read_config(const std::filesystem::path& file,
                         const std::vector<std::string>& overrides, Mistakes& mistakes) {
  const YamlWhere where = [&](int line, int column) {
    return TextPlace{fmt::format("{}:{}:{}", file.string(), line, column), line, column};
  };
  YamlNode root = parse_yaml(read_text(file), where, mistakes);
  if (root.where.text.empty()) root.where = where(1, 1);
  if (root.kind == YamlNode::Kind::kMap) {
    for (const std::string& text : overrides) apply_override(root, text, mistakes);
  }
  LoadedConfig loaded;
  loaded.config = decode_config(root, file.parent_path(), loaded.places, mistakes);
  return loaded;
}

Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Mistakes mistakes;
  LoadedConfig loaded = read_config(file, overrides, mistakes);
  mistakes.throw_if_any();
  return std::move(loaded.config);
}

}  // namespace tessera

#include "config/load.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "config/decode.h"
#include "config/yaml_tree.h"

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

void mark_as_override(YamlNode& node) {
  node.from_file = false;
  for (YamlNode& item : node.items) mark_as_override(item);
  for (YamlEntry& entry : node.entries) mark_as_override(entry.value);
}

// Puts `value` at section.key (or at a section or top-level key); a later override wins.
void apply_override(YamlNode& root, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail_user("config", "--set {}: must be KEY=VALUE, such as training.steps=100", text);
  }
  const std::string path = text.substr(0, equals);
  const std::string where = "--set " + path;
  const std::string value_text = text.substr(equals + 1);
  if (value_text.find(" #") != std::string::npos && value_text.find_first_of("\"'") != 0) {
    fail_user("config", "{}: '{}': a # after a space would begin a comment; quote the value", where,
              value_text);
  }
  YamlNode value = parse_yaml(value_text, [&](int, int) { return where; });
  if (value.where.empty()) value.where = where;
  mark_as_override(value);

  YamlNode* node = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, dot - begin);
    begin = dot + 1;
    if (node->kind != YamlNode::Kind::kMap) {
      fail_user("config", "{}: {} is not a section", where, path.substr(0, dot - key.size() - 1));
    }
    auto entry = node->entries.begin();
    while (entry != node->entries.end() && entry->key != key) ++entry;
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

Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  const auto where = [&](int line, int column) {
    return fmt::format("{}:{}:{}", file.string(), line, column);
  };
  YamlNode root = parse_yaml(read_text(file), where);
  if (root.where.empty()) root.where = where(1, 1);
  if (root.kind == YamlNode::Kind::kMap) {
    for (const std::string& text : overrides) apply_override(root, text);
  }
  return decode_config(root, file.parent_path());
}

}  // namespace tessera

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/yaml/mistakes.h"

namespace tessera {

struct YamlEntry;

// A node of a configuration as it is written: what yaml-cpp's own nodes hide (null against "null",
// quotes, repeated keys) stays visible, and every node knows where it stands.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };

  Kind kind = Kind::kNull;
  std::string scalar;    // kScalar: the text without its quotes
  bool quoted = false;   // kScalar: "x" and 'x'; such a value is never a number
  bool refused = false;  // a mistake was reported for it: nobody decodes it
  TextPlace where;
  std::vector<YamlNode> items;     // kSequence
  std::vector<YamlEntry> entries;  // kMap, as written; only refused entries repeat a key
};

struct YamlEntry {
  std::string key;
  TextPlace where;
  YamlNode value;
  bool refused = false;
};

// Names a place; line and column count from 1, columns in characters.
using YamlWhere = std::function<TextPlace(int line, int column)>;

// Parses one YAML document of UTF-8 text (a byte-order mark and CRLF are taken). Adds the mistakes:
// repeated keys, `<<`, tags, anchors, aliases, texts of several lines, what cannot be seen
// (yaml_lines.h). Throws all of them where nothing more can be read: bad syntax, several documents,
// keys that are not scalars. The result is kNull for text that holds nothing.
YamlNode parse_yaml(const std::string& text, const YamlWhere& where, Mistakes& mistakes);

}  // namespace tessera

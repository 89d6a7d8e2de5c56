#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera {

struct YamlEntry;

// A node of a configuration as it is written: what yaml-cpp's own nodes hide (null against "null",
// quotes, repeated keys) stays visible, and every node knows where it stands.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };

  Kind kind = Kind::kNull;
  std::string scalar;     // kScalar: the text without its quotes
  bool quoted = false;    // kScalar: "x", 'x' and block scalars; such a value is never a number
  std::string where;      // FILE:LINE:COLUMN, or --set a.b
  bool from_file = true;  // false: given by --set
  std::vector<YamlNode> items;     // kSequence
  std::vector<YamlEntry> entries;  // kMap, in the order written, no key twice
};

struct YamlEntry {
  std::string key;
  std::string where;
  YamlNode value;
};

// Names a place; line and column count from 1.
using YamlWhere = std::function<std::string(int line, int column)>;

// Parses one YAML document of UTF-8 text (a byte-order mark and CRLF are taken). UserError
// "[config] WHERE: ..." for bad syntax, several documents, repeated keys, keys that are not
// scalars,
// `<<`, tags, anchors, aliases, control characters and text that is not UTF-8.
// The result is kNull for text that holds nothing.
YamlNode parse_yaml(std::string text, const YamlWhere& where);

}  // namespace tessera

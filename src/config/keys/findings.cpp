#include "config/keys/findings.h"

#include <fmt/format.h>

#include "base/text/odd_characters.h"

namespace tessera {

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

void refuse(const YamlNode& node, const std::string& path, const std::string& rule,
            const std::string& why) {
  throw Refusal{node.where, fmt::format("{}: {}; must be {}{}{}", path, shown(node), rule,
                                        why.empty() ? "" : "; ", why)};
}

}  // namespace tessera

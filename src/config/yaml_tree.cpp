#include "config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cstdint>
#include <sstream>

#include "base/error.h"

namespace tessera {
namespace {

// Bytes of the UTF-8 sequence at `at`, or 0 if it is not well formed.
size_t utf8_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const uint8_t second = byte(at + 1);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool outside = (lead == 0xed && second > 0x9f) || (lead == 0xf4 && second > 0x8f);
  return overlong || outside ? 0 : length;
}

// yaml-cpp replaces bytes that it does not understand and takes 0x04 for the end of the file, so
// what it would read otherwise than it is written is refused here. Also drops the byte-order mark
// and turns CRLF into LF.
std::string normalized(std::string text, const YamlWhere& where) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    fail_user("config", "{}: the text is UTF-16; save it as UTF-8", where(1, 1));
  }
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  std::string out;
  out.reserve(text.size());
  int line = 1;
  int column = 1;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const auto byte = static_cast<uint8_t>(text[i]);
    if (length == 0) {
      fail_user("config", "{}: byte 0x{:02x} is not UTF-8; save the text as UTF-8",
                where(line, column), byte);
    }
    if (byte == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
      continue;
    }
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      fail_user("config", "{}: control character 0x{:02x}; write it as an escape in double quotes",
                where(line, column), byte);
    }
    out.append(text, i, length);
    i += length;
    ++column;
    if (byte == '\n') {
      ++line;
      column = 1;
    }
  }
  return out;
}

// Builds the tree from yaml-cpp's events, which come in the order of the text.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const YamlWhere& where) : where_(where) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      fail_user("config", "{}: a second document starts here; a configuration is one document",
                at(mark));
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse(mark, "", anchor);
    if (key_wanted()) fail_user("config", "{}: a key is null; keys are names", at(mark));
    add(YamlNode::Kind::kNull, mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail_user("config", "{}: an alias (*name); write the value out instead", at(mark));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse(mark, tag == "!" ? "" : tag, anchor);
    if (key_wanted()) {
      open_key(mark, value, tag == "!");
      return;
    }
    YamlNode& node = add(YamlNode::Kind::kScalar, mark);
    node.scalar = value;
    node.quoted = tag == "!";  // yaml-cpp's tag of anything but a plain scalar
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { open_.pop_back(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  // A container that is not closed yet. `node` stays valid: its parent grows only after it closed.
  struct Open {
    YamlNode* node;
    bool has_key = false;  // a map whose last entry waits for its value
  };

  std::string at(const YAML::Mark& mark) const { return where_(mark.line + 1, mark.column + 1); }

  bool key_wanted() const {
    return !open_.empty() && open_.back().node->kind == YamlNode::Kind::kMap &&
           !open_.back().has_key;
  }

  void refuse(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (!tag.empty() && tag != "?") {
      fail_user("config", "{}: tag {}; types come from the key, remove the tag", at(mark), tag);
    }
    if (anchor != YAML::NullAnchor) {
      fail_user("config", "{}: an anchor (&name); write the value out where it is used", at(mark));
    }
  }

  std::string path_to(const std::string& key) const {
    std::string path;
    for (size_t i = 0; i + 1 < open_.size(); ++i) {
      const YamlNode& node = *open_[i].node;
      if (node.kind == YamlNode::Kind::kMap) path += node.entries.back().key + ".";
    }
    return path + key;
  }

  void open_key(const YAML::Mark& mark, const std::string& key, bool quoted) {
    if (key == "<<" && !quoted) {
      fail_user("config", "{}: {}: merge keys are not read; write the keys out", at(mark),
                path_to(key));
    }
    std::vector<YamlEntry>& entries = open_.back().node->entries;
    for (const YamlEntry& entry : entries) {
      if (entry.key == key) {
        fail_user("config", "{}: {}: written twice, first at {}; keep one", at(mark), path_to(key),
                  entry.where);
      }
    }
    entries.push_back({key, at(mark), {}});
    open_.back().has_key = true;
  }

  YamlNode& add(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode* node = &root_;
    if (!open_.empty()) {
      Open& parent = open_.back();
      if (parent.node->kind == YamlNode::Kind::kMap) {
        parent.has_key = false;
        node = &parent.node->entries.back().value;
      } else {
        node = &parent.node->items.emplace_back();
      }
    }
    node->kind = kind;
    node->where = at(mark);
    return *node;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    refuse(mark, tag, anchor);
    if (key_wanted()) {
      fail_user("config", "{}: a key is a list or a map; keys are names", at(mark));
    }
    open_.push_back({&add(kind, mark)});
  }

  const YamlWhere& where_;
  YamlNode root_;
  std::vector<Open> open_;
  int documents_ = 0;
};

// Takes events and does nothing: a first pass that finds what is not YAML at all, since yaml-cpp
// sends misleading events (a map with a list for a key) before it misses a closing bracket.
class SyntaxCheck : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

void send_events(const std::string& text, YAML::EventHandler& handler) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  while (parser.HandleNextDocument(handler)) {
  }
}

// True if the line (from 0) of `text` is indented with a tab, which is what most often breaks.
bool tab_indents(const std::string& text, int line) {
  std::istringstream lines(text);
  std::string content;
  for (int i = 0; i <= line; ++i) {
    if (!std::getline(lines, content)) return false;
  }
  return content.substr(0, content.find_first_not_of(" \t")).find('\t') != std::string::npos;
}

}  // namespace

YamlNode parse_yaml(std::string text, const YamlWhere& where) {
  text = normalized(std::move(text), where);
  TreeBuilder builder(where);
  try {
    SyntaxCheck check;
    send_events(text, check);
    send_events(text, builder);
  } catch (const YAML::Exception& error) {
    const bool known = !error.mark.is_null();
    const int line = known ? error.mark.line : 0;
    const int column = known ? error.mark.column : 0;
    fail_user(
        "config", "{}: not valid YAML: {}{}", where(line + 1, column + 1), error.msg,
        tab_indents(text, line) ? "; the line is indented with a tab, YAML wants spaces" : "");
  }
  return builder.take_root();
}

}  // namespace tessera

#include "config/yaml/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "base/text/odd_characters.h"
#include "config/yaml/yaml_lines.h"

namespace tessera {
namespace {

// A text by lines, to turn yaml-cpp's places, which count bytes, into ours, and to look at what
// stands there.
class Lines {
 public:
  explicit Lines(const std::string& text) : text_(text), starts_{0} {
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') starts_.push_back(i + 1);
  }

  TextPlace place(const YAML::Mark& mark, const YamlWhere& where) const {
    if (mark.is_null()) return where(1, 1);
    int column = 1;
    for (size_t i = start_of(mark.line); i < offset(mark); ++i)
      if ((static_cast<unsigned char>(text_[i]) & 0xc0) != 0x80) ++column;
    return where(mark.line + 1, column);
  }

  // Whether `value` stands at `mark` as it is.
  bool holds(const YAML::Mark& mark, const std::string& value) const {
    return text_.compare(offset(mark), value.size(), value) == 0;
  }

  // True if the line is indented with a tab, which is what most often breaks.
  bool tab_indents(const YAML::Mark& mark) const {
    size_t i = start_of(mark.is_null() ? 0 : mark.line);
    for (; i < text_.size() && (text_[i] == ' ' || text_[i] == '\t'); ++i)
      if (text_[i] == '\t') return true;
    return false;
  }

 private:
  size_t start_of(int line) const {
    return static_cast<size_t>(line) < starts_.size() ? starts_[static_cast<size_t>(line)]
                                                      : text_.size();
  }
  size_t offset(const YAML::Mark& mark) const {
    return std::min(start_of(mark.line) + static_cast<size_t>(mark.column), text_.size());
  }

  const std::string& text_;
  std::vector<size_t> starts_;
};

// Builds the tree from yaml-cpp's events, which come in the order of the text.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const Lines& lines, const YamlWhere& where, Mistakes& mistakes)
      : lines_(lines), where_(where), mistakes_(mistakes) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      mistakes_.fail(at(mark), "a second document starts here; a configuration is one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const bool refused = refuse(mark, "", anchor);
    if (key_wanted()) {
      mistakes_.add(at(mark), "a key is null; keys are names");
      add_entry(mark, "", /*refused=*/true);
      return;
    }
    add(YamlNode::Kind::kNull, mark).refused = refused;
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    mistakes_.add(at(mark), "an alias (*name); write the value out instead");
    if (key_wanted()) {
      add_entry(mark, "", /*refused=*/true);
      return;
    }
    add(YamlNode::Kind::kNull, mark).refused = true;
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool quoted = tag == "!";  // yaml-cpp's tag of anything but a plain scalar
    bool refused = refuse(mark, quoted ? "" : tag, anchor);
    if (!quoted && anchor == YAML::NullAnchor && tag == "?" && !lines_.holds(mark, value)) {
      mistakes_.add(at(mark), fmt::format("{}: the text goes on in another line; write it in one "
                                          "line (a comment needs a #)",
                                          value));
      refused = true;
    } else if (const std::string why = why_not_text(value); !why.empty()) {
      mistakes_.add(at(mark), fmt::format("\"{}\": {}; a text is one line of what can be seen",
                                          visible_text(value), why));
      refused = true;
    }
    if (key_wanted()) {
      open_key(mark, value, quoted, refused);
      return;
    }
    YamlNode& node = add(YamlNode::Kind::kScalar, mark);
    node.scalar = value;
    node.quoted = quoted;
    node.refused = refused;
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

  TextPlace at(const YAML::Mark& mark) const { return lines_.place(mark, where_); }

  bool key_wanted() const {
    return !open_.empty() && open_.back().node->kind == YamlNode::Kind::kMap &&
           !open_.back().has_key;
  }

  bool refuse(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    const bool tagged = !tag.empty() && tag != "?";
    if (tagged)
      mistakes_.add(at(mark), fmt::format("tag {}; types come from the key, remove the tag", tag));
    if (anchor != YAML::NullAnchor)
      mistakes_.add(at(mark), "an anchor (&name); write the value out where it is used");
    return tagged;
  }

  std::string path_to(const std::string& key) const {
    std::string path;
    for (size_t i = 0; i + 1 < open_.size(); ++i) {
      const YamlNode& node = *open_[i].node;
      if (node.kind == YamlNode::Kind::kMap) path += node.entries.back().key + ".";
    }
    return path + key;
  }

  void open_key(const YAML::Mark& mark, const std::string& key, bool quoted, bool refused) {
    if (key == "<<" && !quoted) {
      mistakes_.add(at(mark),
                    fmt::format("{}: merge keys are not read; write the keys out", path_to(key)));
      refused = true;
    }
    for (const YamlEntry& entry : open_.back().node->entries) {
      if (entry.key != key || entry.refused || refused) continue;
      mistakes_.add(at(mark), fmt::format("{}: written twice, first at {}; keep one", path_to(key),
                                          entry.where.text));
      refused = true;
    }
    add_entry(mark, key, refused);
  }

  void add_entry(const YAML::Mark& mark, const std::string& key, bool refused) {
    open_.back().node->entries.push_back({key, at(mark), {}, refused});
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
    if (key_wanted()) mistakes_.fail(at(mark), "a key is a list or a map; keys are names");
    open_.push_back({&add(kind, mark)});
  }

  const Lines& lines_;
  const YamlWhere& where_;
  Mistakes& mistakes_;
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

}  // namespace

YamlNode parse_yaml(const std::string& text, const YamlWhere& where, Mistakes& mistakes) {
  const std::string read = read_lines(text, where, mistakes);
  const Lines lines(read);
  TreeBuilder builder(lines, where, mistakes);
  try {
    SyntaxCheck check;
    send_events(read, check);
    send_events(read, builder);
  } catch (const YAML::Exception& error) {
    mistakes.throw_if_any();  // what was found before may be why
    mistakes.fail(lines.place(error.mark, where),
                  fmt::format("not valid YAML: {}{}", error.msg,
                              lines.tab_indents(error.mark)
                                  ? "; the line is indented with a tab, YAML wants spaces"
                                  : ""));
  }
  return builder.take_root();
}

}  // namespace tessera

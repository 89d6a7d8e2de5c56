#include "config/yaml/yaml_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/odd_characters.h"

namespace tessera {
namespace {

// The end of a message: what stands in the line before `at`. Empty for spaces alone.
std::string before(std::string_view line, size_t at) {
  constexpr size_t kShown = 24;
  size_t begin = at > kShown ? at - kShown : 0;
  while (begin < at && (static_cast<unsigned char>(line[begin]) & 0xc0) == 0x80) ++begin;
  const std::string_view shown = line.substr(begin, at - begin);
  return shown.find_first_not_of(' ') == std::string_view::npos
             ? ""
             : fmt::format(" after '{}'", shown.substr(shown.find_first_not_of(' ')));
}

// One line at a time. What is kept from line to line is how deep in brackets it stands.
class LineReader {
 public:
  LineReader(const YamlWhere& where, Mistakes& mistakes) : where_(where), mistakes_(mistakes) {}

  std::string read(std::string_view line) {
    ++number_;
    odd_.clear();
    mended_.clear();
    mend(line);
    const size_t comment = tokens();
    for (const Odd& odd : odd_) {
      // Comments may hold what they like, except what makes a line look like another one.
      if (odd.at > comment && !turns_direction(odd.c)) continue;
      mistakes_.add(where_(number_, odd.column),
                    fmt::format("{}, {}{}; {}", code_point_name(odd.c), invisible_character(odd.c),
                                before(mended_, std::min(odd.at, mended_.size())),
                                looks_like_a_space(odd.c) ? "write a plain space" : "remove it"));
    }
    return mended_;
  }

 private:
  struct Odd {
    char32_t c;
    int column;
    size_t at;  // in mended_
  };

  // Spaces of other kinds become plain ones, what takes no place goes.
  void mend(std::string_view line) {
    int column = 1;
    for (size_t i = 0; i < line.size(); ++column) {
      const auto [c, bytes] = code_point_at(line, i);
      if (bytes == 0)
        mistakes_.fail(where_(number_, column),
                       fmt::format("byte 0x{:02x} is not UTF-8; save the text as UTF-8",
                                   static_cast<unsigned char>(line[i])));
      if (c != '\t' && !invisible_character(c).empty()) {
        odd_.push_back({c, column, mended_.size()});
        if (looks_like_a_space(c)) mended_ += ' ';
      } else {
        mended_ += line.substr(i, bytes);
      }
      i += bytes;
    }
  }

  // Goes from token to token; returns where a comment begins, or the end of the line.
  size_t tokens() {
    bool start = true;  // a token may begin here
    bool closed =
        false;  // right after a quote or bracket that closes: a colon needs no space there
    for (size_t i = 0; i < mended_.size();) {
      const char c = mended_[i];
      const bool free = i == 0 || is_space(i - 1);
      if (c == '#' && free) return i;
      if (is_space(i)) {
        ++i;
        continue;
      }
      const bool was_closed = std::exchange(closed, false);
      if (c == ':' &&
          (is_space(i + 1) || was_closed || (depth_ > 0 && is_one_of(i + 1, ",[]{}")))) {
        start = true;
        ++i;
      } else if (depth_ > 0 && c == ',') {
        start = true;
        ++i;
      } else if ((c == '[' || c == '{') && (start || depth_ > 0)) {
        ++depth_;
        start = true;
        ++i;
      } else if ((c == ']' || c == '}') && depth_ > 0) {
        --depth_;
        start = false;
        closed = true;
        ++i;
      } else if (!start) {
        ++i;
      } else if (i == 0 && depth_ == 0 && (starts_with("---") || starts_with("..."))) {
        i = 3;
      } else if (i == 0 && c == '%') {
        return mended_.size();  // a directive
      } else if ((c == '-' || c == '?') && is_space(i + 1)) {
        ++i;
      } else if (c == '&' || c == '*' || c == '!') {
        while (i < mended_.size() && !is_space(i) && !(depth_ > 0 && is_one_of(i, ",[]{}"))) ++i;
        start = c != '*';
      } else if (c == '|' || c == '>') {
        fail(i, fmt::format("{}: a text of several lines; write it in one line, in quotes", c));
      } else if (c == '"' || c == '\'') {
        i = quoted(i);
        start = false;
        closed = true;
      } else {
        if (const auto [quote, bytes] = code_point_at(mended_, i);
            bytes > 1 && (look_alike(quote) == '"' || look_alike(quote) == '\''))
          add(i, fmt::format("{}, which looks like a quote and is a letter to YAML; write {}",
                             code_point_name(quote), look_alike(quote)));
        start = false;
        ++i;
      }
    }
    return mended_.size();
  }

  // Where the text that the quote at `open` begins has ended.
  size_t quoted(size_t open) {
    const char quote = mended_[open];
    size_t i = open + 1;
    for (; i < mended_.size(); ++i) {
      if (quote == '"' && mended_[i] == '\\') {
        ++i;
      } else if (mended_[i] == quote) {
        if (quote == '"' || i + 1 >= mended_.size() || mended_[i + 1] != quote) break;
        ++i;  // '' stands for one
      }
    }
    if (i >= mended_.size())
      fail(open, fmt::format("{}: the quote is not closed in its line; close it, or write the text "
                             "in one line",
                             mended_.substr(open)));
    ++i;
    if (!is_space(i) && !is_one_of(i, ":,]}"))
      fail(open, fmt::format("{}: after the closing quote comes '{}'; a quote inside a text is "
                             "written {}",
                             mended_.substr(open, i - open), mended_.substr(i),
                             quote == '"' ? "\\\"" : "''"));
    return i;
  }

  bool is_space(size_t i) const {
    return i >= mended_.size() || mended_[i] == ' ' || mended_[i] == '\t';
  }
  bool is_one_of(size_t i, std::string_view characters) const {
    return i < mended_.size() && characters.find(mended_[i]) != std::string_view::npos;
  }
  bool starts_with(std::string_view text) const {
    return mended_.starts_with(text) && is_space(text.size());
  }

  TextPlace place(size_t at) const {
    int column = 1;
    for (size_t i = 0; i < at; ++i)
      if ((static_cast<unsigned char>(mended_[i]) & 0xc0) != 0x80) ++column;
    return where_(number_, column);
  }
  void add(size_t at, std::string message) { mistakes_.add(place(at), std::move(message)); }
  [[noreturn]] void fail(size_t at, std::string message) {
    mistakes_.fail(place(at), std::move(message));
  }

  const YamlWhere& where_;
  Mistakes& mistakes_;
  int number_ = 0;
  int depth_ = 0;
  std::string mended_;  // the line
  std::vector<Odd> odd_;
};

}  // namespace

std::string read_lines(const std::string& text, const YamlWhere& where, Mistakes& mistakes) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    mistakes.fail(where(1, 1), "the text is UTF-16; save it as UTF-8");
  std::string_view rest = text;
  if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);
  LineReader reader(where, mistakes);
  std::string out;
  out.reserve(rest.size());
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    if (end != std::string_view::npos && line.ends_with('\r')) line.remove_suffix(1);
    out += reader.read(line);
    if (end == std::string_view::npos) break;
    out += '\n';
    rest.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace tessera

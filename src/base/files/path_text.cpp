#include "base/files/path_text.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>

#include "base/text/odd_characters.h"

namespace tessera {
namespace {

bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}

// The length of the variable's name that begins at `at`; 0: there is none.
size_t name_length(const std::string& text, size_t at) {
  size_t end = at;
  while (end < text.size() &&
         (begins_name(text[end]) || (end > at && text[end] >= '0' && text[end] <= '9')))
    ++end;
  return end - at;
}

// Adds the value of a variable, or says why there is none.
std::string add_variable(const std::string& name, std::string& out) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr)
    return fmt::format("the variable {} is not set; set it or write the path out", name);
  if (*value == '\0')
    return fmt::format("the variable {} is empty; set it or write the path out", name);
  if (const std::string why = why_not_text(value); !why.empty())
    return fmt::format("the variable {} is no path: {}", name, why);
  out += value;
  return "";
}

}  // namespace

ExpandedPath expand_path(const std::string& text) {
  std::string out;
  const auto wrong = [](std::string why) { return ExpandedPath{"", std::move(why)}; };
  size_t i = 0;
  if (text.starts_with("~")) {
    if (text.size() > 1 && text[1] != '/')
      return wrong(
          fmt::format("{} as another user's home is not looked up; write the path out, or "
                      "./{} for a folder of that name",
                      text.substr(0, text.find('/')), text));
    if (std::string why = add_variable("HOME", out); !why.empty())
      return wrong("~ is HOME, and " + why);
    i = 1;
  }
  while (i < text.size()) {
    if (text[i] != '$') {
      out += text[i++];
      continue;
    }
    if (text.compare(i, 2, "$$") == 0) {
      out += '$';
      i += 2;
      continue;
    }
    const bool braces = text.compare(i, 2, "${") == 0;
    const size_t begin = i + (braces ? 2 : 1);
    const size_t length = name_length(text, begin);
    const bool closed = !braces || (begin + length < text.size() && text[begin + length] == '}');
    if (length == 0 || !closed)
      return wrong(fmt::format(
          "'{}' is no variable; they are written $NAME or ${{NAME}}, and $$ is a dollar "
          "sign",
          text.substr(i)));
    if (std::string why = add_variable(text.substr(begin, length), out); !why.empty())
      return wrong(std::move(why));
    i = begin + length + (braces ? 1 : 0);
  }
  return {std::move(out), ""};
}

std::string path_as_written(const std::string& path) {
  std::string text;
  if (path.starts_with("~")) text = "./";
  for (const char c : path) text += c == '$' ? "$$" : std::string(1, c);
  return text;
}

}  // namespace tessera

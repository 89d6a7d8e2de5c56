#include "base/text/odd_characters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace tessera {
namespace {

struct Range {
  char32_t first, last;
  const char* what;
};

// In rising order.
constexpr Range kInvisible[] = {
    {0x0000, 0x001f, "a control character"},
    {0x007f, 0x009f, "a control character"},
    {0x00a0, 0x00a0, "a no-break space"},
    {0x00ad, 0x00ad, "a soft hyphen, which is not shown"},
    {0x034f, 0x034f, "a joiner, which takes no place"},
    {0x061c, 0x061c, "a mark of the direction of writing"},
    {0x115f, 0x1160, "a filler, which is not shown"},
    {0x1680, 0x1680, "a kind of space"},
    {0x17b4, 0x17b5, "a vowel that is not shown"},
    {0x180b, 0x180f, "a separator, which takes no place"},
    {0x2000, 0x200a, "a kind of space"},
    {0x200b, 0x200b, "a zero-width space"},
    {0x200c, 0x200d, "a zero-width joiner"},
    {0x200e, 0x200f, "a mark of the direction of writing"},
    {0x2028, 0x2029, "a line separator"},
    {0x202a, 0x202e, "a mark of the direction of writing"},
    {0x202f, 0x202f, "a narrow no-break space"},
    {0x205f, 0x205f, "a kind of space"},
    {0x2060, 0x2065, "a joiner, which takes no place"},
    {0x2066, 0x2069, "a mark of the direction of writing"},
    {0x206a, 0x206f, "a control character"},
    {0x2800, 0x2800, "an empty Braille cell"},
    {0x3000, 0x3000, "a wide space"},
    {0x3164, 0x3164, "a filler, which is not shown"},
    {0xfe00, 0xfe0f, "a variation selector, which takes no place"},
    {0xfeff, 0xfeff, "a byte-order mark inside the text"},
    {0xffa0, 0xffa0, "a filler, which is not shown"},
    {0xfff0, 0xfffb, "a control character"},
    {0xfffd, 0xfffd, "what programs write for a character that they could not read"},
    {0xfffe, 0xffff, "not a character"},
    {0x1d173, 0x1d17a, "a control character"},
    {0xe0000, 0xe0fff, "a tag, which takes no place"},
};

struct LookAlike {
  char32_t c;
  char ascii;
};

// Letters of other alphabets, and the quotes and dashes that word processors put in.
constexpr LookAlike kLookAlikes[] = {
    // Cyrillic
    {0x0430, 'a'},
    {0x0432, 'B'},
    {0x0435, 'e'},
    {0x043a, 'k'},
    {0x043c, 'M'},
    {0x043d, 'H'},
    {0x043e, 'o'},
    {0x0440, 'p'},
    {0x0441, 'c'},
    {0x0442, 'T'},
    {0x0443, 'y'},
    {0x0445, 'x'},
    {0x0455, 's'},
    {0x0456, 'i'},
    {0x0458, 'j'},
    {0x04bb, 'h'},
    {0x0501, 'd'},
    {0x051b, 'q'},
    {0x051d, 'w'},
    {0x0410, 'A'},
    {0x0412, 'B'},
    {0x0415, 'E'},
    {0x041a, 'K'},
    {0x041c, 'M'},
    {0x041d, 'H'},
    {0x041e, 'O'},
    {0x0420, 'P'},
    {0x0421, 'C'},
    {0x0422, 'T'},
    {0x0423, 'Y'},
    {0x0425, 'X'},
    {0x0405, 'S'},
    {0x0406, 'I'},
    {0x0408, 'J'},
    {0x04cf, 'l'},
    {0x0475, 'v'},
    // Greek
    {0x0391, 'A'},
    {0x0392, 'B'},
    {0x0395, 'E'},
    {0x0396, 'Z'},
    {0x0397, 'H'},
    {0x0399, 'I'},
    {0x039a, 'K'},
    {0x039c, 'M'},
    {0x039d, 'N'},
    {0x039f, 'O'},
    {0x03a1, 'P'},
    {0x03a4, 'T'},
    {0x03a5, 'Y'},
    {0x03a7, 'X'},
    {0x03b1, 'a'},
    {0x03b9, 'i'},
    {0x03bd, 'v'},
    {0x03bf, 'o'},
    {0x03c1, 'p'},
    {0x03c5, 'u'},
    {0x03ba, 'k'},
    {0x03c4, 't'},
    // Armenian, dotless i, script g
    {0x0570, 'h'},
    {0x0578, 'n'},
    {0x057d, 'u'},
    {0x0585, 'o'},
    {0x0131, 'i'},
    {0x0261, 'g'},
    // quotes, dashes and signs
    {0x2018, '\''},
    {0x2019, '\''},
    {0x201a, '\''},
    {0x201b, '\''},
    {0x2032, '\''},
    {0x201c, '"'},
    {0x201d, '"'},
    {0x201e, '"'},
    {0x201f, '"'},
    {0x2033, '"'},
    {0x2010, '-'},
    {0x2011, '-'},
    {0x2012, '-'},
    {0x2013, '-'},
    {0x2014, '-'},
    {0x2015, '-'},
    {0x2212, '-'},
    {0x2024, '.'},
    {0x00b7, '.'},
    {0x3002, '.'},
    {0x2215, '/'},
    {0x2044, '/'},
    {0x2236, ':'},
    {0xa789, ':'},
    {0x02d0, ':'},
    {0x3001, ','},
    {0x02dc, '~'},
    {0x223c, '~'},
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) return {};
  char32_t value = lead & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(at + i) & 0x3f);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool outside = (value >= 0xd800 && value <= 0xdfff) || value > 0x10ffff;
  return overlong || outside ? CodePoint{} : CodePoint{value, length};
}

std::string code_point_name(char32_t c) {
  return fmt::format("U+{:04X}", static_cast<uint32_t>(c));
}

std::string_view invisible_character(char32_t c) {
  const auto* range =
      std::lower_bound(std::begin(kInvisible), std::end(kInvisible), c,
                       [](const Range& r, char32_t value) { return r.last < value; });
  return range != std::end(kInvisible) && range->first <= c ? range->what : "";
}

bool looks_like_a_space(char32_t c) {
  return c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x202f || c == 0x205f ||
         c == 0x2800 || c == 0x3000;
}

char look_alike(char32_t c) {
  if (c >= 0xff01 && c <= 0xff5e) return static_cast<char>(c - 0xff01 + '!');  // full width
  const auto* found = std::find_if(std::begin(kLookAlikes), std::end(kLookAlikes),
                                   [c](const LookAlike& entry) { return entry.c == c; });
  return found == std::end(kLookAlikes) ? '\0' : found->ascii;
}

bool turns_direction(char32_t c) {
  return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

std::string in_ascii(std::string_view text) {
  std::string ascii;
  for (size_t i = 0; i < text.size();) {
    const auto [c, bytes] = code_point_at(text, i);
    if (bytes == 0) return std::string(text);
    if (const char like = look_alike(c))
      ascii += like;
    else if (looks_like_a_space(c))
      ascii += ' ';
    else if (invisible_character(c).empty())
      ascii += text.substr(i, bytes);
    i += bytes;
  }
  return ascii;
}

std::string odd_characters_note(std::string_view text) {
  if (is_ascii(text)) return "";
  std::vector<std::string> notes;
  int number = 1;
  for (size_t i = 0; i < text.size(); ++number) {
    const auto [c, bytes] = code_point_at(text, i);
    if (bytes == 0) return "it is not UTF-8";
    i += bytes;
    if (c < 0x80) continue;
    if (notes.size() == 3) {
      notes.emplace_back("and more");
      break;
    }
    std::string note = fmt::format("character {} is {}", number, code_point_name(c));
    const char like = look_alike(c);
    if (const std::string_view what = invisible_character(c); !what.empty())
      note += fmt::format(", {}", what);
    else if (like != '\0')
      note += fmt::format(
          ", which looks like {}{}",
          (like >= 'a' && like <= 'z') || (like >= 'A' && like <= 'Z') ? "the Latin " : "", like);
    notes.push_back(std::move(note));
  }
  return fmt::format("{}", fmt::join(notes, ", "));
}

std::string visible_text(std::string_view text) {
  std::string visible;
  for (size_t i = 0; i < text.size();) {
    const auto [c, bytes] = code_point_at(text, i);
    if (bytes == 0)
      visible += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[i]));
    else if (!invisible_character(c).empty())
      visible += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    else
      visible += text.substr(i, bytes);
    i += std::max<size_t>(bytes, 1);
  }
  return visible;
}

std::string start_of_text(std::string_view text) {
  constexpr size_t kMostBytes = 200;
  if (text.size() <= kMostBytes) return std::string(text);
  size_t end = 0;
  while (end < kMostBytes) end += std::max<size_t>(code_point_at(text, end).bytes, 1);
  return fmt::format("{}... ({} more bytes)", text.substr(0, end), text.size() - end);
}

std::string why_not_text(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto [c, bytes] = code_point_at(text, i);
    if (bytes == 0)
      return fmt::format("it holds byte 0x{:02x}, which is not UTF-8",
                         static_cast<uint8_t>(text[i]));
    if (const std::string_view what = invisible_character(c); !what.empty())
      return fmt::format("it holds {}, {}", code_point_name(c), what);
    i += bytes;
  }
  return "";
}

}  // namespace tessera

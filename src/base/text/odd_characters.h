#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Characters of Unicode that cannot be seen, or that look like another: what is wrong with a text
// that looks right.
namespace tessera {

struct CodePoint {
  char32_t value = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

// The code point whose UTF-8 form begins at `at`.
CodePoint code_point_at(std::string_view text, size_t at);

// Such as U+00A0.
std::string code_point_name(char32_t c);

// What a character is that no text should hold: a control character (tabs and line ends too), one
// that takes no place, turns the direction of writing, or looks like a plain space. Empty for all
// others. Such as "a no-break space".
std::string_view invisible_character(char32_t c);

// Whether `c` is written apart from its neighbours, as a space is.
bool looks_like_a_space(char32_t c);

// The ASCII character that `c` is easily taken for; 0: none.
char look_alike(char32_t c);

// Whether `c` may change the order in which text is shown.
bool turns_direction(char32_t c);

// The text with look-alikes in place of what they look like, and without what cannot be seen.
std::string in_ascii(std::string_view text);

// For a message about a name or number that can only be ASCII: "character 1 is U+0441, which looks
// like the Latin c"; every character that is not ASCII, at most three. Empty if there is none.
std::string odd_characters_note(std::string_view text);

// The text with \uXXXX in place of what cannot be seen.
std::string visible_text(std::string_view text);

// A text in a message: its first code points, and how many bytes follow them, where it is long.
std::string start_of_text(std::string_view text);

// Why a text, though YAML can spell it, cannot be a value of the configuration: "it holds U+000A, a
// control character". Empty: nothing.
std::string why_not_text(std::string_view text);

}  // namespace tessera

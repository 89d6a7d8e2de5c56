#include "base/text/odd_characters.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(OddCharacters, CodePointsOfUtf8) {
  EXPECT_EQ(code_point_at("a", 0).value, U'a');
  EXPECT_EQ(code_point_at("x\xd1\x81", 1).value, char32_t{0x441});
  EXPECT_EQ(code_point_at("\xe2\x80\x8b", 0).value, char32_t{0x200b});
  EXPECT_EQ(code_point_at("\xf0\x9f\x98\x80", 0).value, char32_t{0x1f600});
  // Overlong, surrogate, beyond Unicode, cut off, a byte of the middle.
  for (const char* wrong : {"\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x80", "\x80", "\xff"})
    EXPECT_EQ(code_point_at(wrong, 0).bytes, 0u) << wrong;
}

TEST(OddCharacters, WhatCannotBeSeen) {
  for (const char32_t c :
       {0x0,    0x9,    0xa,    0x1b,   0x7f,   0x85,   0xa0,   0xad,   0x200b, 0x200d,
        0x200e, 0x2028, 0x202e, 0x202f, 0x2060, 0x2067, 0x3000, 0xfeff, 0xfffd, 0xe0041})
    EXPECT_NE(invisible_character(c), "") << code_point_name(c);
  // Letters of all alphabets, signs, marks that join letters, emoji.
  for (const char32_t c : {0x20, 0x41, 0xe9, 0x301, 0x441, 0x5d0, 0x627, 0x4e2d, 0x3042, 0xac00,
                           0x201c, 0x20ac, 0x1f600})
    EXPECT_EQ(invisible_character(c), "") << code_point_name(c);
}

TEST(OddCharacters, NotesNameThePlaceAndTheLookAlike) {
  EXPECT_EQ(odd_characters_note("steps"), "");
  EXPECT_EQ(odd_characters_note("\xd1\x81heckpoint"),
            "character 1 is U+0441, which looks like the Latin c");
  EXPECT_EQ(odd_characters_note("1e\xe2\x88\x92"
                                "4"),
            "character 3 is U+2212, which looks like -");
  EXPECT_EQ(odd_characters_note("\xef\xbc\x93"), "character 1 is U+FF13, which looks like 3");
  EXPECT_EQ(odd_characters_note("a\xe4\xb8\xad"), "character 2 is U+4E2D");
  EXPECT_EQ(odd_characters_note("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"),
            "character 1 is U+00E9, character 2 is U+00E9, character 3 is U+00E9, and more");
  EXPECT_EQ(in_ascii("\xd1\x81heck\xe2\x80\x8bpoint\xc2\xa0"), "checkpoint ");
  EXPECT_EQ(visible_text("a\xe2\x80\x8b\t\xc3\xa9\xff"), "a\\u200b\\u0009\xc3\xa9\\xff");
}

TEST(OddCharacters, TextsAreOneLineOfWhatCanBeSeen) {
  EXPECT_EQ(why_not_text("/data/\xd0\xb4\xd0\xb0\xd0\xbd\xd0\xbd\xd1\x8b\xd0\xb5/e\xcc\x81"), "");
  EXPECT_EQ(why_not_text("a\nb"), "it holds U+000A, a control character");
  EXPECT_EQ(why_not_text("a\xc2\xa0"), "it holds U+00A0, a no-break space");
  EXPECT_EQ(why_not_text("\xff"), "it holds byte 0xff, which is not UTF-8");
}

}  // namespace
}  // namespace tessera

#include "data/text_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The text in pieces of `piece` bytes.
void check_utf8(std::string_view text, size_t piece) {
  Utf8Check check("a.txt");
  for (size_t i = 0; i < text.size(); i += piece) check.add(text.substr(i, piece));
  check.finish();
}

TEST(Utf8Check, TakesEveryCharacterInPiecesOfAnySize) {
  // The first and last of each length, those around the surrogates, and the last of all.
  const std::string text =
      "\x01 \x7f \xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf "
      "\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf \xef\xbb\xbf\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) check_utf8(text, piece);
}

TEST(Utf8Check, NamesTheFirstWrongByte) {
  struct Case {
    std::string bytes;
    const char* what;
  };
  for (const Case& c : {Case{"abc\x80", "byte 0x80 at offset 3"},
                        {"abc\xe9t\xe9", "byte 0xe9 at offset 3"},
                        {"\xc3\xa9\xc3", "byte 0xc3 at offset 2"},
                        {"\xc0\xaf", "byte 0xc0 at offset 0"},          // '/' in two bytes
                        {"\xe0\x9f\xbf", "byte 0xe0 at offset 0"},      // too long
                        {"\xf0\x8f\xbf\xbf", "byte 0xf0 at offset 0"},  // too long
                        {" \xed\xa0\x80", "byte 0xed at offset 1"},     // half a surrogate pair
                        {"\xf4\x90\x80\x80", "byte 0xf4 at offset 0"},  // beyond Unicode
                        {"\xf5\x80\x80\x80", "byte 0xf5 at offset 0"},
                        {"\xe2\x82", "byte 0xe2 at offset 0"},
                        {"\xf0\x9f\x98", "byte 0xf0 at offset 0"},
                        {"\xe2\x82\xac\xff", "byte 0xff at offset 3"},
                        {std::string("ab\0c", 4), "byte 0x00 at offset 2"}}) {
    for (size_t piece = 1; piece <= c.bytes.size(); ++piece)
      EXPECT_THAT(error_of([&] { check_utf8(c.bytes, piece); }),
                  AllOf(HasSubstr("[data] a.txt: "), HasSubstr(c.what), HasSubstr("--bytes")));
  }
}

std::string head_error(const std::string& path, const std::string& head) {
  return error_of([&] { check_text_head(path, head); });
}

TEST(TextHead, NamesFormatsByTheirBytes) {
  struct Case {
    std::string head;
    const char* what;
  };
  for (const Case& c : {Case{"\x1f\x8b\x08", "gzip"},
                        {"\x28\xb5\x2f\xfd", "zstd"},
                        {std::string("\xfd\x37zXZ\0", 6), "xz"},
                        {"BZh91AY", "bzip2"},
                        {"PK\x03\x04", "zip"},
                        {"PAR1\x15\x04", "Parquet"},
                        {"%PDF-1.7\n", "PDF"},
                        {std::string(257, 'a') + "ustar", "tar"},
                        {std::string("MMIDIDX\0\0\1", 10), "data.train takes its path"},
                        {std::string("\xff\xfeh\0i\0", 6), "UTF-16"}}) {
    EXPECT_THAT(head_error("a.txt", c.head),
                AllOf(HasSubstr("[data] a.txt: "), HasSubstr(c.what), HasSubstr("--bytes")));
  }
}

TEST(TextHead, NamesJsonByNameAndByItsFirstLine) {
  for (const char* name : {"a.json", "b/a.jsonl", "A.JSONL", "a.ndjson"})
    EXPECT_THAT(head_error(name, "x"), HasSubstr("by its name it holds JSON"));
  EXPECT_THAT(head_error("a.txt", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"),
              HasSubstr("its first line, from offset 0, is a JSON object"));
  for (const char* text : {"{\n  int a;\n}\n", "{curly} words\n", "[1]\n", "json\n", "a", ""})
    EXPECT_EQ(head_error("a.txt", text), "no error") << text;
}

TEST(TextHead, TakesPlainTextWhateverItsName) {
  for (const char* name : {"a.txt", "a.gz", "a.json.txt", "a", "README.md"})
    EXPECT_EQ(head_error(name, "Plain text.\n"), "no error") << name;
}

}  // namespace
}  // namespace tessera

#include "data/text_check.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view magic;
  size_t offset;
  const char* what;
  const char* fix;  // after "; "
};

constexpr const char* kUnpack = "unpack it first";
constexpr const char* kExtract = "take the text out of it first";
constexpr const char* kBinary = "it holds no text to train on";

constexpr Format kFormats[] = {
    {"\x1f\x8b"sv, 0, "compressed by gzip", "unpack it first (gzip -dk)"},
    {"\x28\xb5\x2f\xfd"sv, 0, "compressed by zstd", "unpack it first (zstd -dk)"},
    {"\xfd\x37zXZ\0"sv, 0, "compressed by xz", "unpack it first (xz -dk)"},
    {"BZh"sv, 0, "compressed by bzip2", "unpack it first (bzip2 -dk)"},
    {"\x04\x22\x4d\x18"sv, 0, "compressed by lz4", "unpack it first (lz4 -dk)"},
    {"7z\xbc\xaf\x27\x1c"sv, 0, "a 7z archive", kUnpack},
    {"PK\x03\x04"sv, 0, "a zip archive, or a document or checkpoint that is one inside", kUnpack},
    {"ustar"sv, 257, "a tar archive", "unpack it first (tar -xf)"},
    {"PAR1"sv, 0, "Parquet", kExtract},
    {"ARROW1"sv, 0, "Arrow", kExtract},
    {"Obj\x01"sv, 0, "Avro", kExtract},
    {"SQLite format 3\0"sv, 0, "an SQLite database", kExtract},
    {"%PDF-"sv, 0, "PDF", "take the text out of it first (pdftotext)"},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, 0, "an old Office document", kExtract},
    {"\x89HDF\r\n\x1a\n"sv, 0, "HDF5", kExtract},
    {"\x93NUMPY"sv, 0, "a NumPy array",
     "write tokens in Megatron's layout, which data.train reads"},
    {"MMIDIDX\0\0"sv, 0, "an index in Megatron's layout",
     "it is packed already: data.train takes its path without .idx"},
    {"\x7f"
     "ELF"sv,
     0, "a program", kBinary},
    {"\x89PNG\r\n\x1a\n"sv, 0, "a PNG image", "tools/pack_images.py packs images"},
    {"\xff\xd8\xff"sv, 0, "a JPEG image", "tools/pack_images.py packs images"},
    {"\xff\xfe"sv, 0, "UTF-16 or UTF-32 text", "convert it first (iconv -f UTF-16 -t UTF-8)"},
    {"\xfe\xff"sv, 0, "UTF-16 text", "convert it first (iconv -f UTF-16 -t UTF-8)"},
};

bool begins(std::string_view head, const Format& format) {
  return head.size() >= format.offset && head.substr(format.offset).starts_with(format.magic);
}

[[noreturn]] void refuse_json(const std::filesystem::path& path, const std::string& why) {
  fail_user("data",
            "{}: {}; a token per byte would train on braces and field names: take the text out of "
            "it first (such as jq -r .text {} > mine.txt), or pack the file as it is with --bytes",
            path.string(), why, path.string());
}

// Records of JSON, one a line: the first line is an object by itself.
bool is_json_lines(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\n'));
  return line.starts_with('{') && nlohmann::json::accept(line.begin(), line.end());
}

}  // namespace

void check_text_head(const std::filesystem::path& path, std::span<const char> bytes) {
  const std::string_view head(bytes.data(), bytes.size());
  for (const Format& format : kFormats) {
    if (begins(head, format))
      fail_user("data",
                "{}: the bytes from offset {} say that it is {}, not plain text; {}, or pack the "
                "file as it is with --bytes",
                path.string(), format.offset, format.what, format.fix);
  }
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* name : {".json", ".jsonl", ".jsonlines", ".ndjson"})
    if (ending == name) refuse_json(path, "by its name it holds JSON");
  if (is_json_lines(head)) refuse_json(path, "its first line, from offset 0, is a JSON object");
}

void Utf8Check::add(std::span<const char> block) {
  for (size_t i = 0; i < block.size(); ++i, ++position_) {
    const auto byte = static_cast<uint8_t>(block[i]);
    if (missing_ > 0) {
      if (byte < low_ || byte > high_) refuse_character();
      low_ = 0x80;
      high_ = 0xBF;
      --missing_;
    } else if (byte == 0) {
      fail_user("data",
                "{}: byte 0x00 at offset {}; text has no NUL bytes, so this is a binary file (or "
                "UTF-16): give plain text, or pack the file as it is with --bytes",
                path_.string(), position_);
    } else if (byte >= 0x80) {
      begin_ = position_;
      lead_ = byte;
      // The second byte's range keeps out forms that are too long, halves of surrogate pairs, and
      // what lies beyond Unicode.
      if (byte >= 0xC2 && byte <= 0xDF) {
        missing_ = 1;
      } else if (byte >= 0xE0 && byte <= 0xEF) {
        missing_ = 2;
        if (byte == 0xE0) low_ = 0xA0;
        if (byte == 0xED) high_ = 0x9F;
      } else if (byte >= 0xF0 && byte <= 0xF4) {
        missing_ = 3;
        if (byte == 0xF0) low_ = 0x90;
        if (byte == 0xF4) high_ = 0x8F;
      } else {
        refuse_character();
      }
    }
  }
}

void Utf8Check::finish() const {
  if (missing_ > 0) refuse_character();
}

void Utf8Check::refuse_character() const {
  fail_user("data",
            "{}: byte 0x{:02x} at offset {} begins no whole character of UTF-8, which text must "
            "be: convert it (such as iconv -f ISO-8859-1 -t UTF-8), or pack the file as it is "
            "with --bytes",
            path_.string(), lead_, begin_);
}

}  // namespace tessera

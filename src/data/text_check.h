#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace tessera {

// As many of a file's first bytes as check_text_head() needs; fewer only where the file has fewer.
inline constexpr int64_t kTextHeadBytes = int64_t{1} << 16;

// UserError if a file is a known format that is not the text itself: compressed, an archive, a
// document, records of JSON. By its first bytes, and JSON also by the name of the file.
void check_text_head(const std::filesystem::path& path, std::span<const char> head);

// Checks a file that comes block by block to be UTF-8 without NUL bytes. A character may lie across
// blocks.
class Utf8Check {
 public:
  explicit Utf8Check(std::filesystem::path path) : path_(std::move(path)) {}

  // UserError that names the file, the offset of the first wrong byte, and what to do.
  void add(std::span<const char> block);
  void finish() const;  // the file is at its end

 private:
  [[noreturn]] void refuse_character() const;

  std::filesystem::path path_;
  int64_t position_ = 0;  // of the next byte
  // The character that has begun: where, its first byte, how many bytes are missing, and in which
  // range the next of them must lie.
  int64_t begin_ = 0;
  uint8_t lead_ = 0;
  int missing_ = 0;
  uint8_t low_ = 0x80, high_ = 0xBF;
};

}  // namespace tessera

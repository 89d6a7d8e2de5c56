#include "safetensors/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/text/json_text.h"
#include "base/text/odd_characters.h"
#include "base/xxh3.h"
#include "safetensors/format.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr size_t kMaxDims = 64;
constexpr uint64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

// Takes the header's JSON event by event, so that a header of many megabytes never becomes a tree.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  HeaderHandler(std::string path, SafetensorsHeader& header)
      : path_(std::move(path)), header_(header) {}

  bool null() override {
    // The reference library takes it for no metadata.
    if (place_ != Place::kFile || entry_.name != "__metadata__") refuse("null");
    return true;
  }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_integer(number_integer_t value) override {
    refuse(fmt::format("the negative number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    refuse(fmt::format("the number {}", text));
  }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kArray) refuse(fmt::format("the number {}", value));
    if (value > kMaxInt64)
      fail_damaged("safetensors", "{}: tensor '{}': {} holds {}, which is above 2^63 - 1", path_,
                   entry_.name, field_, value);
    numbers_.push_back(static_cast<int64_t>(value));
    if (numbers_.size() > kMaxDims)
      fail_damaged("safetensors", "{}: tensor '{}': {} holds more than {} numbers", path_,
                   entry_.name, field_, kMaxDims);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[field_] = std::move(value);
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype")
      refuse(fmt::format("the string \"{}\"", value));
    const std::optional<Dtype> dtype = dtype_from_name(value);
    if (!dtype)
      fail_damaged("safetensors", "{}: tensor '{}': dtype '{}' is not known or not supported",
                   path_, entry_.name, value);
    entry_.dtype = *dtype;
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::kFile) {
      if (!names_.insert(name).second)
        fail_damaged("safetensors", "{}: '{}' is given twice in the header", path_, name);
      if (name.find('\0') != std::string::npos)
        fail_damaged("safetensors", "{}: a tensor's name holds NUL: '{}'", path_,
                     name.substr(0, name.find('\0')));
      if (name.empty()) fail_damaged("safetensors", "{}: a tensor has an empty name", path_);
      entry_ = TensorEntry{};
      entry_.name = std::move(name);
      return true;
    }
    field_ = std::move(name);
    if (place_ == Place::kMetadata) {
      if (header_.metadata.contains(field_))
        fail_damaged("safetensors", "{}: __metadata__ gives '{}' twice", path_, field_);
      return true;
    }
    if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets")
      fail_damaged("safetensors", "{}: tensor '{}' has the unknown field '{}'", path_, entry_.name,
                   field_);
    if (!fields_.insert(field_).second)
      fail_damaged("safetensors", "{}: tensor '{}' gives {} twice", path_, entry_.name, field_);
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kFile;
    } else if (place_ == Place::kFile) {
      place_ = entry_.name == "__metadata__" ? Place::kMetadata : Place::kTensor;
      fields_.clear();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!fields_.contains(field))
          fail_damaged("safetensors", "{}: tensor '{}' has no {}", path_, entry_.name, field);
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::kFile ? Place::kEnd : Place::kFile;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || field_ == "dtype") refuse("an array");
    place_ = Place::kArray;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    if (field_ == "shape") {
      entry_.shape = numbers_;
    } else {
      if (numbers_.size() != 2)
        fail_damaged("safetensors", "{}: tensor '{}': data_offsets holds {} numbers, the rule is 2",
                     path_, entry_.name, numbers_.size());
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    fail_damaged("safetensors", "{}: the header is not valid JSON at byte {}: {}", path_, position,
                 start_of_text(visible_text(error.what())));
  }

 private:
  enum class Place { kStart, kFile, kMetadata, kTensor, kArray, kEnd };

  [[noreturn]] void refuse(const std::string& what) {
    if (place_ == Place::kStart)
      fail_damaged("safetensors", "{}: the header is {}, the rule is an object", path_, what);
    fail_damaged("safetensors", "{}: '{}': {} does not belong at '{}'", path_, entry_.name, what,
                 place_ == Place::kFile ? entry_.name : field_);
  }

  std::string path_;
  SafetensorsHeader& header_;
  Place place_ = Place::kStart;
  TensorEntry entry_;  // the one that is being read; for "__metadata__" only its name is used
  std::string field_;
  std::vector<int64_t> numbers_;
  std::set<std::string> fields_;
  std::unordered_set<std::string> names_;
};

// Says what a file is that people mistake for safetensors.
void refuse_other_formats(const std::string& path, std::string_view start) {
  if (start.starts_with("PK\x03\x04"))
    fail_damaged(
        "safetensors",
        "{} is a zip archive (a PyTorch .bin or .pt file?), not safetensors; save the model "
        "with safe_serialization=True",
        path);
  if (start.starts_with("version https://git-lfs"))
    fail_damaged("safetensors",
                 "{} is a Git-LFS pointer, not the file itself; fetch it with `git lfs pull`",
                 path);
  if (start.starts_with("\x80\x02"))
    fail_damaged("safetensors", "{} is a Python pickle, not safetensors", path);
}

// Each entry on its own: shape, dtype and range agree and lie in the data.
void check_entry(const std::string& path, const TensorEntry& entry, int64_t data_bytes) {
  if (entry.begin > entry.end)
    fail_damaged("safetensors", "{}: tensor '{}': data_offsets begin at {} after their end {}",
                 path, entry.name, entry.begin, entry.end);
  if (entry.end > data_bytes)
    fail_damaged(
        "safetensors",
        "{}: tensor '{}' ends at byte {} of the data, the file holds {}; it is truncated or "
        "forged",
        path, entry.name, entry.end, data_bytes);
  const int64_t numel = checked_numel(entry.shape, entry.dtype);
  if (numel < 0)
    fail_damaged("safetensors", "{}: tensor '{}': the shape [{}] holds more than 2^63 - 1 bytes",
                 path, entry.name, fmt::join(entry.shape, ", "));
  const int64_t bytes = numel * dtype_size(entry.dtype);
  if (bytes != entry.end - entry.begin)
    fail_damaged("safetensors",
                 "{}: tensor '{}': shape [{}] of {} takes {} bytes, data_offsets give it {}", path,
                 entry.name, fmt::join(entry.shape, ", "), dtype_name(entry.dtype), bytes,
                 entry.end - entry.begin);
}

// How many bytes of a file of `size` bytes are length and header. `start`: its first 64 bytes, or
// all of them.
int64_t header_end(const std::string& path, std::string_view start, int64_t size) {
  refuse_other_formats(path, start);
  if (size < 8)
    fail_damaged("safetensors",
                 "{} has {} bytes, a safetensors file has at least 8; it is truncated", path, size);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(start[static_cast<size_t>(i)]);
  if (length > static_cast<uint64_t>(size - 8))
    fail_damaged(
        "safetensors",
        "{}: the header says it has {} bytes, the file has only {} after the length; it is "
        "truncated or not safetensors",
        path, length, size - 8);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes))
    fail_damaged("safetensors", "{}: the header says it has {} bytes, the format allows {}", path,
                 length, kMaxHeaderBytes);
  return 8 + static_cast<int64_t>(length);
}

// Sorts the entries by where their data lie, which must be back to back in `data_bytes`.
void order_entries(const std::string& path, std::vector<TensorEntry>& entries, int64_t data_bytes) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& left, const auto& right) {
    return std::pair(left.begin, left.end) < std::pair(right.begin, right.end);
  });
  int64_t cursor = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.begin < cursor)
      fail_damaged("safetensors",
                   "{}: tensor '{}' begins at byte {} of the data, inside '{}', which ends at {}",
                   path, entry.name, entry.begin, before->name, cursor);
    if (entry.begin > cursor)
      fail_damaged(
          "safetensors",
          "{}: the data has a hole: tensor '{}' begins at byte {}, the data before it ends "
          "at {}",
          path, entry.name, entry.begin, cursor);
    cursor = entry.end;
    before = &entry;
  }
  if (cursor != data_bytes)
    fail_damaged(
        "safetensors",
        "{}: {} bytes follow the last tensor: the header accounts for {} bytes of data, the "
        "file holds {}",
        path, data_bytes - cursor, cursor, data_bytes);
}

// `text`: length and header of a file of `size` bytes.
SafetensorsHeader parse_header(const std::string& path, std::string_view text, int64_t size) {
  SafetensorsHeader header;
  header.data_begin = std::ssize(text);
  header.xxh3 = xxh3_hex(text.data(), text.size());
  if (const auto fault = hidden_bytes(text.substr(8)))
    fail_damaged("safetensors", "{}: the header is not valid JSON: it {}; spaces alone may pad it",
                 path, *fault);
  HeaderHandler handler(path, header);
  json::sax_parse(text.begin() + 8, text.end(), &handler);
  const int64_t data_bytes = size - header.data_begin;
  for (const TensorEntry& entry : header.entries) check_entry(path, entry, data_bytes);
  order_entries(path, header.entries, data_bytes);
  return header;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const File& file) {
  const std::string path = file.path().string();
  const int64_t size = file.size();
  std::string start(static_cast<size_t>(std::min<int64_t>(size, 64)), '\0');
  file.read_at(start.data(), std::ssize(start), 0);
  std::string text(static_cast<size_t>(header_end(path, start, size)), '\0');
  file.read_at(text.data(), std::ssize(text), 0);
  return parse_header(path, text, size);
}

SafetensorsHeader read_safetensors_header(std::string_view bytes, const std::string& path) {
  const int64_t size = std::ssize(bytes);
  const int64_t end = header_end(path, bytes.substr(0, 64), size);
  return parse_header(path, bytes.substr(0, static_cast<size_t>(end)), size);
}

}  // namespace tessera

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/files.h"

namespace tessera {

// The safetensors format (Hugging Face): u64 little-endian length n, n bytes of JSON header, data.
// The header maps a tensor's name to dtype, shape and [begin, end) in the data; "__metadata__" maps
// strings to strings.

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the reference library's limit

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes, from the start of the data; may be unaligned
  int64_t end = 0;
};

struct SafetensorsHeader {
  int64_t data_begin = 0;            // bytes from the start of the file: 8 + header
  std::vector<TensorEntry> entries;  // in the order of their data
  std::map<std::string, std::string> metadata;
  std::string xxh3;  // of the first data_begin bytes
};

// Reads and checks the header of a file that may be forged. Nothing is allocated before the length
// has been held against the file's size and the format's limit. What the reference library
// refuses is refused: tensors lie back to back, without holes, overlaps or bytes after the last
// one, and shape x dtype gives each one's length. So is what that library takes by chance or for
// another reader: names that are repeated, empty or hold NUL, fields that it does not know, a
// tensor without elements whose strides do not fit int64, more than 64 dims, and dtypes that no
// weight here has. DamagedError that names file, tensor and numbers.
SafetensorsHeader read_safetensors_header(const File& file);

// The number of elements of a shape; -1 if a size is negative, or if the size in bytes or a stride
// does not fit int64.
int64_t checked_numel(const std::vector<int64_t>& shape, Dtype dtype);

// What a file will hold: names, types and shapes in the order in which the data comes.
struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
};

// Writes a safetensors file front to back: the header first, then data as it comes.
class SafetensorsWriter {
 public:
  // Error for names that are empty, repeated, reserved, not UTF-8 or hold NUL.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& specs,
                    const std::map<std::string, std::string>& metadata);

  // The next bytes of the data, logical order (row-major), little-endian.
  void append(const void* data, int64_t bytes);

  // Writes other values of the metadata over those given at first; every value keeps its length.
  void replace_metadata(const std::map<std::string, std::string>& metadata);

  // fsyncs and closes. Error if fewer bytes came than the header says.
  void finish();

  int64_t file_size() const { return data_begin() + data_bytes_; }
  // XXH3 of the first 8 + header bytes.
  std::string header_xxh3() const;

 private:
  int64_t data_begin() const { return static_cast<int64_t>(header_.size()); }

  std::vector<TensorSpec> specs_;
  int64_t data_bytes_ = 0;
  int64_t written_ = 0;
  std::string header_;  // with its length in front
  File file_;
};

}  // namespace tessera

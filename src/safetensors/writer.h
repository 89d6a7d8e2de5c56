#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/files/files.h"

namespace tessera {

// What a file will hold: names, types and shapes in the order in which the data comes.
struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
};

// The first bytes of a safetensors file: length and header, padded with spaces so that the data
// begin at a multiple of 8. `path` names the file in messages. Error for names that are not UTF-8.
std::string safetensors_header(const std::string& path, const std::vector<TensorSpec>& specs,
                               const std::map<std::string, std::string>& metadata);

// Writes a safetensors file front to back: the header first, then data as it comes.
class SafetensorsWriter {
 public:
  // Error for names that are empty, repeated, reserved, not UTF-8 or hold NUL.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& specs,
                    const std::map<std::string, std::string>& metadata);

  // The next bytes of the data, logical order (row-major), little-endian.
  void append(const void* data, int64_t bytes);

  // fsyncs and closes. Error if fewer bytes came than the header says.
  void finish();

  int64_t file_size() const { return data_begin() + data_bytes_; }
  // Where the data begin in the file: 8 + header.
  int64_t data_begin() const { return static_cast<int64_t>(header_.size()); }
  // XXH3 of the first 8 + header bytes.
  std::string header_xxh3() const;

 private:
  std::vector<TensorSpec> specs_;
  int64_t data_bytes_ = 0;
  int64_t written_ = 0;
  std::string header_;  // with its length in front
  File file_;
};

}  // namespace tessera

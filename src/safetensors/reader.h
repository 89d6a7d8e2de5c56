#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/files/files.h"

namespace tessera {

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

// Reads and checks the header of a file that may be forged. Nothing is allocated before the
// header's length has been checked against the file's size and the format's limit. Refuses what the
// reference library refuses: tensors must lie back to back, without holes, overlaps or bytes after
// the last one, and shape x dtype must give each one's length. Also refuses what that library
// accepts by chance or for other readers: names that are repeated, empty or hold NUL, fields that
// it does not know, a tensor without elements whose strides do not fit int64, more than 64 dims,
// and dtypes that no weight here has. DamagedError that names file, tensor and numbers.
SafetensorsHeader read_safetensors_header(const File& file);
// The same of a whole file that lies in memory; `path` names it in messages.
SafetensorsHeader read_safetensors_header(std::string_view bytes, const std::string& path);

}  // namespace tessera

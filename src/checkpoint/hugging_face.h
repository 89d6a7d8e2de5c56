#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace tessera {

// No config.json is larger: those of models with many classes, each with a name, have some MiB.
inline constexpr int64_t kMaxHfConfigBytes = int64_t{16} << 20;

// A folder as Hugging Face's transformers writes it: config.json, and either model.safetensors or
// several files with model.safetensors.index.json, which says which tensor is in which file.
struct HuggingFaceFolder {
  struct Tensor {
    TensorEntry entry;
    size_t file = 0;
    int64_t file_offset = 0;  // bytes from the start of the file
  };

  nlohmann::json config;
  std::vector<std::filesystem::path> files;
  std::vector<Tensor> tensors;  // file by file, in the order of their data
};

// Reads config, index and headers, no data. UserError for files that are missing, a tensor that is
// in two files, an index that names files outside the folder or does not agree with the files.
HuggingFaceFolder open_hugging_face(const std::filesystem::path& dir);

// transformers' name of a dtype, such as "float32", for config.json.
std::string torch_dtype_name(Dtype dtype);

}  // namespace tessera

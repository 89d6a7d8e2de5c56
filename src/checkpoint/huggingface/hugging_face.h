#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/huggingface/hf_tensors.h"
#include "safetensors/reader.h"

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
    std::string stored_name;  // as in the file, where entry.name is changed later
  };

  std::filesystem::path path;
  nlohmann::json config;
  std::vector<std::filesystem::path> files;
  std::vector<std::string> headers;  // of each file, the digest of its header
  std::vector<Tensor> tensors;       // file by file, in the order of their data
  std::vector<std::string> notes;    // for the user, a line each
};

// Reads DIR/config.json. UserError if `dir` is no folder, or the file is missing, unreadable or no
// JSON object.
nlohmann::json read_hugging_face_config(const std::filesystem::path& dir);

// Reads index and headers, no data. Of several sets of weights the one that transformers loads: the
// file that config.json names as transformers_weights, else model.safetensors, else what
// model.safetensors.index.json lists; without any of these, which transformers would refuse, all
// *.safetensors. Tensors that `names` ignores are left out, and need not lie where an index says;
// nor need a tied head. UserError for files that are missing, a tensor that is in two files, an
// index that names files outside the folder or does not agree with the files.
HuggingFaceFolder open_hugging_face(const std::filesystem::path& dir, nlohmann::json config,
                                    const HfTensors& names);

// Runs `work`, which only reads a folder that the user gave: whatever keeps it from being read
// (permissions, a loop of links, a failing disk) is then a UserError that names file and reason.
template <typename Work>
auto reading_source(Work&& work) {
  try {
    return work();
  } catch (const UserError&) {
    throw;
  } catch (const Error& error) {
    throw UserError(error.what());
  }
}

// transformers' name of a dtype, such as "float32", for config.json.
std::string torch_dtype_name(Dtype dtype);

}  // namespace tessera

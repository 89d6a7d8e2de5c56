#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/huggingface/hf_tensors.h"

namespace tessera {

struct ConsolidateOptions {
  std::optional<Dtype> dtype;                  // default: the dtype stored (fp32 master weights)
  int64_t max_shard_bytes = int64_t{5} << 30;  // larger models get several files and an index
  // From the model's config.json, how its files name and shape the tensors.
  std::function<HfTensors(const nlohmann::json& config)> tensors = [](const nlohmann::json&) {
    return HfTensors();
  };
};

// Streams the weights of STEP_DIR into a Hugging Face folder that `transformers` loads:
// config.json, model.safetensors, or model-00001-of-0000N.safetensors with
// model.safetensors.index.json, and the files that were carried along (hf_files.h). Memory stays
// bounded by a fixed buffer whatever the model's size. OUT_DIR must not exist or be empty; it
// appears whole or not at all (written beside it and renamed). Returns notes for the user, a line
// each: what the file system of OUT_DIR cannot do (try_folder.h).
std::vector<std::string> consolidate(const std::filesystem::path& step_dir,
                                     const std::filesystem::path& out_dir,
                                     const ConsolidateOptions& options);

}  // namespace tessera

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
#include "checkpoint/store/tool_options.h"

namespace tessera {

struct ConsolidateOptions {
  std::optional<Dtype> dtype;                  // default: the dtype stored (fp32 master weights)
  int64_t max_shard_bytes = int64_t{5} << 30;  // larger models get several files and an index
  // From the model's config.json, how its files name and shape the tensors.
  std::function<HfTensors(const nlohmann::json& config)> tensors = [](const nlohmann::json&) {
    return HfTensors();
  };
  bool with_optimizer = false;  // the whole training state as well
  ToolOptions tool = {};
};

// Streams the weights of STEP_DIR into a Hugging Face folder that `transformers` loads:
// config.json, model.safetensors, or several files with an index (export_files.h), and the files
// that were carried along (hf_files.h). With the optimizer, training_state/ holds every state of
// every tensor as TENSOR/STATE under our names, in fp32 or fp64 without rounding, and state.json
// with step, samples, configuration and the loop's own state. Memory is a fixed number of MiB per
// thread whatever the model's size. OUT_DIR must not exist or be empty, unless an earlier export
// may be replaced; it appears whole or not at all (whole_folder.h). Returns notes for the user, a
// line each.
std::vector<std::string> consolidate(const std::filesystem::path& step_dir,
                                     const std::filesystem::path& out_dir,
                                     const ConsolidateOptions& options);

}  // namespace tessera

#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/hf_tensors.h"
#include "checkpoint/manifest.h"

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
// appears whole or not at all (written beside it and renamed). Returns what the user should hear
// of.
std::vector<std::string> consolidate(const std::filesystem::path& step_dir,
                                     const std::filesystem::path& out_dir,
                                     const ConsolidateOptions& options);

// What a model says about a Hugging Face folder of its.
struct HfModel {
  HfTensors tensors;
  std::vector<TensorInfo> parameters;  // all, as checkpoints name them; empty: those of the files
};

// The other way: a Hugging Face folder (config.json and *.safetensors, with or without an index)
// into a step folder that holds weights only, in fp32. Streams in bounded memory; matrices that are
// stored transposed are read whole, one at a time. `recognize` sees config.json before anything is
// written, and throws if the model is not one that is wanted. Returns what the user should hear of.
std::vector<std::string> import_hugging_face(
    const std::filesystem::path& hf_dir, const std::filesystem::path& step_dir,
    const std::function<HfModel(const nlohmann::json& config)>& recognize =
        [](const nlohmann::json&) { return HfModel(); });

// A table of what a step folder holds: step, samples, mesh, files, states, tensors, bytes; and with
// `verify` the result of checking every checksum.
void inspect(const std::filesystem::path& step_dir, bool verify, std::ostream& out);

}  // namespace tessera

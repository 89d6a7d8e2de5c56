#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "checkpoint/manifest.h"

namespace tessera {

struct ConsolidateOptions {
  std::optional<Dtype> dtype;                  // default: the dtype stored (fp32 master weights)
  int64_t max_shard_bytes = int64_t{5} << 30;  // larger models get several files and an index
};

// Streams the weights of STEP_DIR into a Hugging Face folder that `transformers` loads:
// config.json, model.safetensors, or model-00001-of-0000N.safetensors with
// model.safetensors.index.json. Memory stays bounded by a fixed buffer whatever the model's size.
// OUT_DIR must not exist or be empty; it appears whole or not at all (written beside it and
// renamed).
void consolidate(const std::filesystem::path& step_dir, const std::filesystem::path& out_dir,
                 const ConsolidateOptions& options);

// The other way: a Hugging Face Llama folder (config.json and *.safetensors, with or without an
// index) into a step folder that holds weights only, in fp32. Streams in bounded memory.
// `check` sees the manifest (model and tensors, no files yet) before anything is written, and
// throws if it is not the model that is wanted.
void import_hugging_face(
    const std::filesystem::path& hf_dir, const std::filesystem::path& step_dir,
    const std::function<void(const Manifest&)>& check = [](const Manifest&) {});

// A table of what a step folder holds: step, samples, mesh, files, states, tensors, bytes; and with
// `verify` the result of checking every checksum.
void inspect(const std::filesystem::path& step_dir, bool verify, std::ostream& out);

}  // namespace tessera

#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/huggingface/hf_source.h"

namespace tessera {

// What checkpoint.init_from names: the weights of a step folder, or of a Hugging Face folder.
struct InitialWeights {
  std::string id;               // tells them from others: Manifest::id, or HuggingFaceSource::id()
  std::optional<int64_t> step;  // of a step folder
  nlohmann::json model;         // their config.json
  std::shared_ptr<HuggingFaceSource> hugging_face = nullptr;  // null: a step folder
  std::vector<std::string> notes = {};  // what is there besides and is not taken, a line each
};

// These read what tells of the weights, no weights. UserError if the folder is neither of the two,
// if it is a Hugging Face folder that does not hold all of a model that this program computes, or
// if it cannot be read.
InitialWeights look_at_weights(const std::filesystem::path& folder);
InitialWeights weights_of_hugging_face(const std::filesystem::path& folder);
// `manifest`: of the step folder.
InitialWeights weights_of_step(const Manifest& manifest, const std::filesystem::path& folder);

// UserError that says what was probably meant, if `folder` is no step folder.
void check_init_from(const std::filesystem::path& folder);

}  // namespace tessera

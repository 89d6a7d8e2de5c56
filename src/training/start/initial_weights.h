#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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

// Reads what tells of the weights, no weights. UserError if the folder is neither, if it is a
// Hugging Face folder that does not hold all of a model that this program computes, or if it cannot
// be read.
InitialWeights look_at_weights(const std::filesystem::path& folder);

}  // namespace tessera

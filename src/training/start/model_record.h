#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/registry.h"

namespace tessera {

// UserError if the model that the checkpoint `step_dir` records (in Hugging Face's config.json,
// `recorded`) differs from `model`, also in keys that change no shape; it lists these keys.
// UserError too if this program cannot compute the recorded model (an unknown scaling of rotary
// positions, another activation).
void check_same_model(const nlohmann::json& recorded, const Model& model,
                      const std::filesystem::path& step_dir);

// The config.json that this run's checkpoints carry. Fields that do not describe the network itself
// (token ids, the longest context, names of classes) are taken from model.config, if the model
// comes from such a file, else from the checkpoint that the run started from (`start`; null: none),
// else from the defaults of the model's class in transformers. The longest context is raised to the
// run's `seq_len` where it is shorter; with neither file nor checkpoint it is the run's.
nlohmann::json model_record(const nlohmann::json& start, const AnyModel& model, int64_t seq_len);

}  // namespace tessera

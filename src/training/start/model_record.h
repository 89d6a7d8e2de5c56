#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/registry.h"

namespace tessera {

// UserError that lists the keys in which the model recorded in the checkpoint `step_dir` (an
// imported config.json, say) differs from `model`, shapes or not; also if it is no model that this
// program computes (an unknown scaling of rotary positions, another activation).
void check_same_model(const nlohmann::json& recorded, const Model& model,
                      const std::filesystem::path& step_dir);

// The config.json that this run's checkpoints carry. What says nothing of the network (token ids,
// the longest context, names of classes) is the model's own: of model.config, if the model comes
// from one, else of the checkpoint that the run started from (`start`; null: none), else of its
// class in transformers. Only a model that was written in the configuration has the run's length as
// its longest context.
nlohmann::json model_record(const nlohmann::json& start, const AnyModel& model, int64_t seq_len);

}  // namespace tessera

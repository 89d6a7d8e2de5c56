#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/model.h"

namespace tessera {

// UserError that lists the keys in which the model recorded in the checkpoint `step_dir` (an
// imported config.json, say) differs from `model`, shapes or not; also if it is no model that this
// program computes (an unknown scaling of rotary positions, another activation).
void check_same_model(const nlohmann::json& recorded, const Model& model,
                      const std::filesystem::path& step_dir);

// The config.json that this run's checkpoints carry. Where the run started from a checkpoint, of
// the same network, what that one's says besides (token ids, the longest context) is kept.
nlohmann::json model_record(const nlohmann::json& start, const Model& model, int64_t seq_len);

}  // namespace tessera

#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/pieces.h"
#include "models/llama_config.h"

namespace tessera {

// The config.json with which `transformers` builds this model; every checkpoint carries it.
nlohmann::json hf_config_of(const LlamaConfig& config, int64_t seq_len);

// Every tensor of this model as checkpoints and Hugging Face folders name it, in model order.
std::vector<TensorInfo> llama_tensors(const LlamaConfig& config);

// UserError that lists the keys in which the model recorded in the checkpoint `step_dir` (an
// imported config.json, say) differs from `config`, shapes or not; also if it is no model that this
// program computes (scaled rotary positions, another activation).
void check_same_model(const nlohmann::json& recorded, const LlamaConfig& config,
                      const std::filesystem::path& step_dir);

}  // namespace tessera

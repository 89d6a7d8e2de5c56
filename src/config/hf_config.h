#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/llama_config.h"

namespace tessera {

// The model that a Hugging Face Llama config.json describes (LlamaConfig of transformers 4 and 5),
// whose defaults apply to the keys that it leaves out. Keys that do not change the network (token
// ids, dtype, cache) are passed over. UserError "[config] SOURCE: key: value; what is supported"
// for anything that this model cannot do; `source` says where the JSON comes from, such as a path.
LlamaConfig llama_config_from_hf(const nlohmann::json& config, const std::string& source);

// Reads the file strictly (repeated keys are errors) and takes the model from it.
LlamaConfig read_hf_config(const std::filesystem::path& file);

}  // namespace tessera

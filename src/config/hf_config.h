#pragma once

#include <filesystem>

#include "models/llama_config.h"

namespace tessera {

// Reads the config.json of a Hugging Face Llama model (LlamaConfig of transformers 4 and 5), whose
// defaults apply to the keys that it leaves out. Keys that do not change the network (token ids,
// dtype, cache) are passed over. UserError "[config] FILE: key: value; what is supported" for
// anything that this model cannot do.
LlamaConfig read_hf_config(const std::filesystem::path& file);

}  // namespace tessera

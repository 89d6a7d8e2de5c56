#pragma once

#include <memory>
#include <vector>

#include "models/llama/llama_config.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"
#include "parallel/mesh.h"

namespace tessera {

// Llama (Touvron et al. 2023) as a chain of stages (decoder.h): RMSNorm, SwiGLU, causal attention
// with rotary positions, grouped queries; no biases. Parameters carry Hugging Face's names. `mesh`
// outlives the stages. seq_len fixes the rotary tables.
//
// Its relatives differ by switches of the configuration: biases of q, k and v, RMSNorm of each head
// of q and k, a sliding window, stretched rotary positions.
//
// Dropout, in a micro-batch that names its rows: on the embedding's output, on the outputs of
// o_proj and down_proj, on attention probabilities.
std::vector<std::unique_ptr<Stage>> make_llama(const LlamaConfig& config, int64_t seq_len,
                                               Mesh& mesh, const ModelOptions& options);

}  // namespace tessera

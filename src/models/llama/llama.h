#pragma once

#include <memory>
#include <vector>

#include "models/llama/llama_config.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"
#include "parallel/mesh.h"
#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// Llama (Touvron et al. 2023) as a chain of stages: embedding, num_hidden_layers blocks, head with
// loss. Parameters carry Hugging Face's names. `mesh` outlives the stages. seq_len fixes the rotary
// tables.
//
// clang-format off
//   tokens [B, S] -> x [B*S, H]
//   block: x -> x + o_proj(attention(qkv_proj(norm(x))))
//            -> x + down_proj(swiglu(gate_up_proj(norm(x))))
//   head:  x -> sum over tokens of weight * cross_entropy(lm_head(norm(x)), target)
// clang-format on
//
// Its relatives differ by switches of the configuration: biases of q, k and v, RMSNorm of each head
// of q and k, a sliding window, stretched rotary positions.
//
// Tensor parallelism T: q, k, v, gate, up by output rows (heads; with fewer kv heads than T each
// is held by T / kv heads ranks), o and down by input columns, embedding and head by vocabulary;
// norms are whole on every rank. Under sequence parallelism x has this rank's B*S / T rows. With
// tied embeddings the head borrows the embedding's parameter.
//
// Dropout, in a micro-batch that names its rows: on the embedding's output, on the outputs of
// o_proj and down_proj, on attention probabilities.
std::vector<std::unique_ptr<Stage>> make_llama(const LlamaConfig& config, int64_t seq_len,
                                               Mesh& mesh, const ModelOptions& options);

}  // namespace tessera

#pragma once

#include <memory>
#include <vector>

#include "models/layers/activation.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"
#include "parallel/mesh.h"

namespace tessera {

// Hugging Face's names and meanings (GPT2Config).
struct Gpt2Config {
  int64_t n_embd = 0;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_inner = 0;  // 0: 4 n_embd
  int64_t n_positions = 1024;
  int64_t vocab_size = 0;
  Activation activation_function = Activation::kGeluTanh;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  double attn_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;

  int64_t head_dim() const { return n_embd / n_head; }
  int64_t inner() const { return n_inner ? n_inner : 4 * n_embd; }
};

// GPT-2 (Radford et al. 2019) as a chain of stages (decoder.h): LayerNorm, learned positions,
// biases everywhere, causal attention. Parameters carry Hugging Face's names, but for c_attn, which
// is q, k and v in parameters of their own. `mesh` outlives the stages.
std::vector<std::unique_ptr<Stage>> make_gpt2(const Gpt2Config& config, Mesh& mesh,
                                              const ModelOptions& options);

}  // namespace tessera

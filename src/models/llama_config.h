#pragma once

#include <cstdint>

namespace tessera {

// Hugging Face's names and meanings (LlamaConfig).
struct LlamaConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t vocab_size = 0;
  double rope_theta = 10000.0;
  double rms_norm_eps = 1.0e-5;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  double attention_dropout = 0.0;  // of attention probabilities
  // Not Hugging Face's: of what a block's two layers add to the residual stream, and of embeddings.
  double hidden_dropout = 0.0;
  double embedding_dropout = 0.0;

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  bool operator==(const LlamaConfig&) const = default;
};

}  // namespace tessera

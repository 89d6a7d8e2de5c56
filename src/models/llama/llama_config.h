#pragma once

#include <cstdint>

#include "models/layers/rope_scaling.h"

namespace tessera {

// The sizes of Llama and of the models that differ from it by a few switches (Mistral, Qwen2,
// Qwen3). Hugging Face's names and meanings.
struct LlamaConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t given_head_dim = 0;  // 0: hidden_size / num_attention_heads
  int64_t vocab_size = 0;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = {};
  double rms_norm_eps = 1.0e-5;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  double attention_dropout = 0.0;  // of attention probabilities
  bool qkv_bias = false;           // biases of q, k and v, whatever attention_bias says
  bool attention_bias = false;     // biases of q, k, v and o
  bool qk_norm = false;            // RMSNorm of each head of q and k
  int64_t sliding_window = 0;      // keys that a query sees, itself included; 0: all before it
  // Not Hugging Face's: of what a block's two layers add to the residual stream, and of embeddings.
  double hidden_dropout = 0.0;
  double embedding_dropout = 0.0;

  int64_t head_dim() const {
    return given_head_dim ? given_head_dim : hidden_size / num_attention_heads;
  }
  bool operator==(const LlamaConfig&) const = default;
};

}  // namespace tessera

#include "models/gpt2/gpt2.h"

#include <cmath>

#include "models/decoder.h"

namespace tessera {
namespace {

BlockNames block_names() {
  return {.attention_norm = "ln_1",
          .q = "attn.q",
          .k = "attn.k",
          .v = "attn.v",
          .out = "attn.c_proj",
          .mlp_norm = "ln_2",
          .up = {"mlp.c_fc"},
          .down = "mlp.c_proj",
          .attention_dropout = "attn",
          .out_dropout = "attn.c_proj",
          .down_dropout = "mlp.c_proj"};
}

BlockParts block_parts(const Gpt2Config& c) {
  return {.names = block_names(),
          .width = c.n_embd,
          .heads = c.n_head,
          .kv_heads = c.n_head,
          .head_dim = c.head_dim(),
          .inner = c.inner(),
          .layer_norm = true,
          .norm_eps = c.layer_norm_epsilon,
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true,
          .activation = c.activation_function,
          .causal = true,
          .std = c.initializer_range,
          // What adds to the residual stream starts smaller, as its variance grows with the depth.
          .residual_std = c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.n_layer)),
          .attention_dropout = c.attn_pdrop,
          .hidden_dropout = c.resid_pdrop};
}

}  // namespace

std::vector<std::unique_ptr<Stage>> make_gpt2(const Gpt2Config& config, Mesh& mesh,
                                              const ModelOptions& options) {
  return make_decoder({.embedding = "transformer.wte",
                       .positions = "transformer.wpe",
                       .position_count = config.n_positions,
                       .embedding_dropout = config.embd_pdrop,
                       .blocks = "transformer.h",
                       .block_count = config.n_layer,
                       .block = block_parts(config),
                       .norm = "transformer.ln_f",
                       .vocab_size = config.vocab_size,
                       .tied = config.tie_word_embeddings},
                      mesh, options);
}

}  // namespace tessera

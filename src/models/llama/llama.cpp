#include "models/llama/llama.h"

#include "models/decoder.h"

namespace tessera {
namespace {

BlockNames block_names() {
  return {.attention_norm = "input_layernorm",
          .q = "self_attn.q_proj",
          .k = "self_attn.k_proj",
          .v = "self_attn.v_proj",
          .q_norm = "self_attn.q_norm",
          .k_norm = "self_attn.k_norm",
          .out = "self_attn.o_proj",
          .mlp_norm = "post_attention_layernorm",
          .up = {"mlp.gate_proj", "mlp.up_proj"},
          .down = "mlp.down_proj",
          .attention_dropout = "self_attn",
          .out_dropout = "self_attn.o_proj",
          .down_dropout = "mlp.down_proj"};
}

BlockParts block_parts(const LlamaConfig& c, std::shared_ptr<const RopeTable> rope) {
  return {.names = block_names(),
          .width = c.hidden_size,
          .heads = c.num_attention_heads,
          .kv_heads = c.num_key_value_heads,
          .head_dim = c.head_dim(),
          .inner = c.intermediate_size,
          .layer_norm = false,
          .norm_eps = c.rms_norm_eps,
          .qkv_bias = c.qkv_bias || c.attention_bias,
          .out_bias = c.attention_bias,
          .mlp_bias = false,
          .activation = std::nullopt,
          .causal = true,
          .window = c.sliding_window,
          .head_norm = c.qk_norm,
          .rope = std::move(rope),
          .std = c.initializer_range,
          .residual_std = c.initializer_range,
          .attention_dropout = c.attention_dropout,
          .hidden_dropout = c.hidden_dropout};
}

}  // namespace

std::vector<std::unique_ptr<Stage>> make_llama(const LlamaConfig& config, int64_t seq_len,
                                               Mesh& mesh, const ModelOptions& options) {
  auto rope = std::make_shared<const RopeTable>(seq_len, config.head_dim(), config.rope_theta,
                                                options.buffers, config.rope_scaling,
                                                mesh.device().torch_device());
  return make_decoder({.embedding = "model.embed_tokens",
                       .embedding_dropout = config.embedding_dropout,
                       .blocks = "model.layers",
                       .block_count = config.num_hidden_layers,
                       .block = block_parts(config, std::move(rope)),
                       .norm = "model.norm",
                       .vocab_size = config.vocab_size,
                       .tied = config.tie_word_embeddings},
                      mesh, options);
}

}  // namespace tessera

// The keys of Llama and its relatives.
#include "base/fields/field_kinds.h"
#include "models/llama/decoder_model.h"

namespace tessera {
namespace {

std::vector<ModelKey> size_keys(LlamaConfig& c, const DecoderTraits& traits) {
  return {
      {.name = "hidden_size",
       .value = integer(c.hidden_size, 1, kMaxSize),
       .doc = "Width of the residual stream.",
       .aliases = {"dim", "d_model"},
       .required = true,
       .hf = HfKey{}},
      {.name = "intermediate_size",
       .value = integer(c.intermediate_size, 1, kMaxSize),
       .doc = "Width of the feed-forward layer.",
       .aliases = {"ffn_hidden_size"},
       .required = true,
       .hf = HfKey{}},
      {.name = "num_hidden_layers",
       .value = integer(c.num_hidden_layers, 1, kMaxSize),
       .doc = "Number of blocks.",
       .aliases = {"num_layers", "n_layers"},
       .required = true,
       .hf = HfKey{}},
      {.name = "num_attention_heads",
       .value = integer(c.num_attention_heads, 1, kMaxSize),
       .doc = "Query heads.",
       .aliases = {"num_heads", "heads"},
       .required = true,
       .hf = HfKey{}},
      {.name = "num_key_value_heads",
       .value = integer(c.num_key_value_heads, 1, kMaxSize),
       .doc = "Key and value heads; divides num_attention_heads.",
       .aliases = {"num_kv_heads", "num_query_groups"},
       .follows = "num_attention_heads",
       .hf = HfKey{.left_out = traits.kv_heads, .null = 0}},
      {.name = "head_dim",
       .value = integer_or("auto", c.given_head_dim, 2, kMaxSize),
       .doc = "Width of a head; even. auto: hidden_size / num_attention_heads.",
       .aliases = {"kv_channels"},
       .hf = traits.head_dim},
      {.name = "vocab_size",
       .value = integer(c.vocab_size, 1, kMaxSize),
       .doc = "Number of token ids.",
       .required = true,
       .hf = HfKey{}},
      {.name = "rope_theta",
       .value = RealValue{&c.rope_theta, above(0)},
       .doc = "Base of the rotary position embedding.",
       .aliases = {"rotary_base"},
       .role = KeyRole::kRotaryBase},
  };
}

// How rotary frequencies are stretched. config.json says it in a map (hf_rope.h).
std::vector<ModelKey> rope_scaling_keys(RopeScaling& rope) {
  return {
      {.name = "rope_scaling",
       .value = choice(rope.type, {"none", "linear", "llama3"}),
       .doc = "How rotary frequencies are stretched for long contexts; linear: all of them; "
              "llama3: the low ones (Llama 3.1 and later).",
       .aliases = {"rope_type"}},
      {.name = "rope_factor",
       .value = RealValue{&rope.factor, at_least(1)},
       .doc = "With rope_scaling: by how much."},
      {.name = "rope_low_freq_factor",
       .value = RealValue{&rope.low_freq_factor, above(0)},
       .doc = "With rope_scaling llama3."},
      {.name = "rope_high_freq_factor",
       .value = RealValue{&rope.high_freq_factor, above(0)},
       .doc = "With rope_scaling llama3."},
      {.name = "rope_original_max_position_embeddings",
       .value = integer(rope.original_max_position_embeddings, 1, kMaxSize),
       .doc = "With rope_scaling llama3: the length of the first training."},
  };
}

std::vector<ModelKey> other_keys(LlamaConfig& c, const DecoderTraits& traits) {
  return {
      {.name = "rms_norm_eps",
       .value = RealValue{&c.rms_norm_eps, above(0)},
       .doc = "Added to the mean square in RMSNorm.",
       .aliases = {"norm_eps", "layernorm_epsilon"},
       .hf = HfKey{.left_out = traits.rms_norm_eps}},
      {.name = "tie_word_embeddings",
       .value = FlagValue{&c.tie_word_embeddings},
       .doc = "Output layer and embedding share their weights.",
       .hf = HfKey{.left_out = false}},
      {.name = "initializer_range",
       .value = RealValue{&c.initializer_range, at_least(0)},
       .doc = "Standard deviation of the initial weights.",
       .aliases = {"init_method_std"},
       .role = KeyRole::kInitialSpread,
       .hf = HfKey{.left_out = 0.02}},
      {.name = "attention_dropout",
       .value = RealValue{&c.attention_dropout, kRate},
       .doc = "Part of the attention probabilities that is dropped in training.",
       .aliases = {"attn_dropout", "attn_pdrop"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.0, .null = 0.0}},
      {.name = "hidden_dropout",
       .value = RealValue{&c.hidden_dropout, kRate},
       .doc = "Part of what each layer adds to the residual stream that is dropped in training.",
       .aliases = {"resid_pdrop", "hidden_dropout_prob", "residual_dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = traits.hidden_dropout},
      {.name = "embedding_dropout",
       .value = RealValue{&c.embedding_dropout, kRate},
       .doc = "Part of the embedding's output that is dropped in training.",
       .aliases = {"embd_pdrop"},
       .role = KeyRole::kDropoutRate,
       .hf = traits.embedding_dropout},
  };
}

// Keys that not all relatives have.
std::vector<ModelKey> own_keys(LlamaConfig& c, const DecoderTraits& traits) {
  std::vector<ModelKey> keys;
  if (traits.attention_bias)
    keys.push_back({.name = "attention_bias",
                    .value = FlagValue{&c.attention_bias},
                    .doc = "Queries, keys, values and attention's output have a bias.",
                    .hf = HfKey{.left_out = false}});
  if (traits.sliding_window)
    keys.push_back({.name = "sliding_window",
                    .value = integer_or("none", c.sliding_window, 1, kMaxSize),
                    .doc = "Keys that a query sees, its own included.",
                    .hf = traits.sliding_window});
  return keys;
}

}  // namespace

std::vector<ModelKey> DecoderModel::keys() {
  std::vector<ModelKey> keys = size_keys(config, traits_);
  const auto add = [&](const std::vector<ModelKey>& more) {
    keys.insert(keys.end(), more.begin(), more.end());
  };
  if (traits_.rope_scaling) add(rope_scaling_keys(config.rope_scaling));
  add(other_keys(config, traits_));
  add(own_keys(config, traits_));
  return keys;
}

}  // namespace tessera

#include "models/llama/decoder_model.h"

#include <fmt/format.h>

#include "base/divisors.h"
#include "base/fields/field_kinds.h"
#include "models/hf_rope.h"
#include "models/llama/llama.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"

namespace tessera {

std::vector<Field> DecoderModel::fields() {
  LlamaConfig& c = config;
  RopeScaling& rope = c.rope_scaling;
  return {
      {"hidden_size",
       integer(c.hidden_size, 1, kMaxSize),
       true,
       kMathematics,
       "Width of the residual stream.",
       {"dim", "d_model"}},
      {"intermediate_size",
       integer(c.intermediate_size, 1, kMaxSize),
       true,
       kMathematics,
       "Width of the feed-forward layer.",
       {"ffn_hidden_size"}},
      {"num_hidden_layers",
       integer(c.num_hidden_layers, 1, kMaxSize),
       true,
       kMathematics,
       "Number of blocks.",
       {"num_layers", "n_layers"}},
      {"num_attention_heads",
       integer(c.num_attention_heads, 1, kMaxSize),
       true,
       kMathematics,
       "Query heads.",
       {"num_heads", "heads"}},
      {"num_key_value_heads",
       integer(c.num_key_value_heads, 1, kMaxSize),
       false,
       kMathematics,
       "Key and value heads; divides num_attention_heads.",
       {"num_kv_heads", "num_query_groups"},
       "num_attention_heads"},
      {"head_dim",
       integer_or("auto", c.given_head_dim, 2, kMaxSize),
       false,
       kMathematics,
       "Width of a head; even. auto: hidden_size / num_attention_heads.",
       {"kv_channels"}},
      {"vocab_size",
       integer(c.vocab_size, 1, kMaxSize),
       true,
       kMathematics,
       "Number of token ids.",
       {}},
      {"rope_theta",
       RealValue{&c.rope_theta, above(0)},
       false,
       kMathematics,
       "Base of the rotary position embedding.",
       {"rotary_base"}},
      {"rope_scaling",
       choice(rope.type, {"none", "linear", "llama3"}),
       false,
       kMathematics,
       "How rotary frequencies are stretched for long contexts; linear: all of them; llama3: the "
       "low "
       "ones (Llama 3.1 and later).",
       {"rope_type"}},
      {"rope_factor",
       RealValue{&rope.factor, at_least(1)},
       false,
       kMathematics,
       "With rope_scaling: by how much.",
       {}},
      {"rope_low_freq_factor",
       RealValue{&rope.low_freq_factor, above(0)},
       false,
       kMathematics,
       "With rope_scaling llama3.",
       {}},
      {"rope_high_freq_factor",
       RealValue{&rope.high_freq_factor, above(0)},
       false,
       kMathematics,
       "With rope_scaling llama3.",
       {}},
      {"rope_original_max_position_embeddings",
       integer(rope.original_max_position_embeddings, 1, kMaxSize),
       false,
       kMathematics,
       "With rope_scaling llama3: the length of the first training.",
       {}},
      {"rms_norm_eps",
       RealValue{&c.rms_norm_eps, above(0)},
       false,
       kMathematics,
       "Added to the mean square in RMSNorm.",
       {"norm_eps", "layernorm_epsilon"}},
      {"tie_word_embeddings",
       FlagValue{&c.tie_word_embeddings},
       false,
       kMathematics,
       "Output layer and embedding share their weights.",
       {}},
      {"initializer_range",
       RealValue{&c.initializer_range, at_least(0)},
       false,
       kMathematics,
       "Standard deviation of the initial weights.",
       {"init_method_std"}},
      {"attention_dropout",
       RealValue{&c.attention_dropout, kRate},
       false,
       kMathematics,
       "Part of the attention probabilities that is dropped in training.",
       {"attn_dropout", "attn_pdrop"}},
      {"hidden_dropout",
       RealValue{&c.hidden_dropout, kRate},
       false,
       kMathematics,
       "Part of what each layer adds to the residual stream that is dropped in training.",
       {"resid_pdrop", "hidden_dropout_prob", "residual_dropout"}},
      {"embedding_dropout",
       RealValue{&c.embedding_dropout, kRate},
       false,
       kMathematics,
       "Part of the embedding's output that is dropped in training.",
       {"embd_pdrop"}},
  };
}

Field DecoderModel::sliding_window_field() {
  return {"sliding_window",
          integer_or("none", config.sliding_window, 1, kMaxSize),
          false,
          kMathematics,
          "Keys that a query sees, its own included.",
          {}};
}

Field DecoderModel::attention_bias_field() {
  return {"attention_bias",
          FlagValue{&config.attention_bias},
          false,
          kMathematics,
          "Queries, keys, values and attention's output have a bias.",
          {}};
}

nlohmann::json DecoderModel::sliding_window_json() const {
  return config.sliding_window ? nlohmann::json(config.sliding_window) : nlohmann::json();
}

void DecoderModel::refuse_windows(const HfConfig& hf) {
  const nlohmann::json first = hf.json().value("max_window_layers", nlohmann::json(28));
  if (!first.is_number_integer()) hf.refuse("max_window_layers", first, "must be an integer");
  if (hf.flag_or("use_sliding_window", false) && first < hf.size("num_hidden_layers"))
    hf.refuse("use_sliding_window", true,
              "layers with a sliding window beside layers without are not supported");
  if (!hf.has("layer_types")) return;
  for (const nlohmann::json& type : hf.json()["layer_types"])
    if (type != "full_attention")
      hf.refuse("layer_types", type, "only \"full_attention\" is supported");
}

void DecoderModel::complete() {
  if (config.num_key_value_heads == 0) config.num_key_value_heads = config.num_attention_heads;
  if (config.given_head_dim * config.num_attention_heads == config.hidden_size)
    config.given_head_dim = 0;  // one spelling of the same
}

void DecoderModel::check(int64_t, RuleReport& report) const {
  const LlamaConfig& c = config;
  const auto good = [&] {
    return divisors(c.hidden_size, [&](int64_t h) { return c.hidden_size / h % 2 == 0; });
  };
  if (c.given_head_dim == 0 && c.hidden_size % c.num_attention_heads != 0)
    report.broken(
        {"model.num_attention_heads", "model.hidden_size"},
        "model.num_attention_heads: {}; must divide model.hidden_size {} into heads of even "
        "width, or model.head_dim must be given; these would: {}",
        c.num_attention_heads, c.hidden_size, good());
  else if (c.given_head_dim % 2 != 0)
    report.broken(
        {"model.head_dim"},
        "model.head_dim: {}; heads are rotated in pairs, so the width must be even; {} works",
        c.given_head_dim, c.given_head_dim + 1);
  else if (c.head_dim() % 2 != 0)
    report.broken({"model.num_attention_heads", "model.hidden_size"},
                  "model.num_attention_heads: {}; heads of width {} / {} = {} cannot be rotated in "
                  "pairs, the width must be even; these would do: {}",
                  c.num_attention_heads, c.hidden_size, c.num_attention_heads, c.head_dim(),
                  good());
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    report.broken({"model.num_key_value_heads", "model.num_attention_heads"},
                  "model.num_key_value_heads: {}; must divide model.num_attention_heads {}; these "
                  "would: {}",
                  c.num_key_value_heads, c.num_attention_heads, divisors(c.num_attention_heads));
  check_rope_scaling(c.rope_scaling, report);
}

std::string DecoderModel::why_not_tp(int64_t tp) const {
  const LlamaConfig& c = config;
  if (c.num_attention_heads % tp != 0)
    return fmt::format("must divide model.num_attention_heads {}", c.num_attention_heads);
  // Key and value heads are split, or several ranks hold the same one.
  if (c.num_key_value_heads % tp != 0 && tp % c.num_key_value_heads != 0)
    return fmt::format("must divide, or be a multiple of, model.num_key_value_heads {}",
                       c.num_key_value_heads);
  if (c.intermediate_size % tp != 0)
    return fmt::format("must divide model.intermediate_size {}", c.intermediate_size);
  // Its rows on each rank differ by one at most.
  if (c.vocab_size < tp) return fmt::format("must be at most model.vocab_size {}", c.vocab_size);
  return {};
}

std::vector<std::unique_ptr<Stage>> DecoderModel::make_stages(int64_t seq_len, Mesh& mesh,
                                                              const ModelOptions& options) const {
  return make_llama(config, seq_len, mesh, options);
}

void DecoderModel::read_hf_config(const HfConfig& hf) {
  LlamaConfig& c = config;
  c.hidden_size = hf.size("hidden_size");
  c.intermediate_size = hf.size("intermediate_size");
  c.num_hidden_layers = hf.size("num_hidden_layers");
  c.num_attention_heads = hf.size("num_attention_heads");
  // null: as many as query heads, whatever the class takes where the key is left out.
  const bool null_kv_heads =
      hf.json().contains("num_key_value_heads") && !hf.has("num_key_value_heads");
  c.num_key_value_heads =
      null_kv_heads ? c.num_attention_heads : hf.size_or("num_key_value_heads", default_kv_heads());
  c.given_head_dim = hf.has("head_dim") ? hf.size("head_dim") : 0;
  c.vocab_size = hf.size("vocab_size");
  const std::string activation = hf.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    hf.refuse("hidden_act", activation, "only \"silu\", also called \"swish\", is supported");
  if (hf.flag_or("mlp_bias", false))
    hf.refuse("mlp_bias", true, "feed-forward layers with a bias are not supported");
  hf.require("partial_rotary_factor", 1);
  hf.require("is_causal", true);
  read_hf_rope(hf, c.rope_theta, c.rope_scaling);
  // transformers' own defaults, not ours.
  c.rms_norm_eps = hf.number_or("rms_norm_eps", 1.0e-6);
  c.initializer_range = hf.number_or("initializer_range", 0.02);
  c.tie_word_embeddings = hf.flag_or("tie_word_embeddings", false);
  c.attention_dropout = hf.has("attention_dropout") ? hf.rate_or("attention_dropout", 0.0) : 0.0;
  read_own(hf);
  complete();
}

nlohmann::json DecoderModel::hf_config(int64_t seq_len) const {
  nlohmann::json json = {{"architectures", {architecture()}},
                         {"model_type", type()},
                         {"hidden_act", "silu"},
                         {"hidden_size", config.hidden_size},
                         {"intermediate_size", config.intermediate_size},
                         {"num_hidden_layers", config.num_hidden_layers},
                         {"num_attention_heads", config.num_attention_heads},
                         {"num_key_value_heads", config.num_key_value_heads},
                         {"head_dim", config.head_dim()},
                         {"vocab_size", config.vocab_size},
                         {"max_position_embeddings", seq_len},
                         {"rms_norm_eps", config.rms_norm_eps},
                         {"tie_word_embeddings", config.tie_word_embeddings},
                         {"initializer_range", config.initializer_range},
                         {"attention_dropout", config.attention_dropout},
                         {"use_cache", true},
                         {"bos_token_id", nullptr},
                         {"eos_token_id", nullptr}};
  write_hf_rope(config.rope_theta, config.rope_scaling, json);
  write_own(json);
  return json;
}

nlohmann::json DecoderModel::hf_defaults() const {
  nlohmann::json defaults = {{"max_position_embeddings", default_max_positions()},
                             {"use_cache", true}};
  // An id outside of the vocabulary is no token of this model's.
  const nlohmann::json ids = default_token_ids();
  for (const auto& [key, id] : ids.items())
    defaults[key] = id.is_null() || id < config.vocab_size ? id : nlohmann::json();
  return defaults;
}

HfTensors DecoderModel::hf_tensors() const {
  HfTensors tensors;
  tensors.architecture = architecture();
  tensors.base_prefix = "model.";
  tensors.head = "lm_head.weight";
  if (config.tie_word_embeddings) tensors.tied = {"lm_head.weight", "model.embed_tokens.weight"};
  tensors.ignored = {"rotary_emb.inv_freq"};
  return tensors;
}

}  // namespace tessera

#include "models/llama/decoder_model.h"

#include <fmt/format.h>

#include "base/divisors.h"
#include "models/hf_rope.h"
#include "models/llama/llama.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"

namespace tessera {
namespace {

// UserError for windows that only some of the layers have.
void refuse_layer_windows(const HfConfig& hf) {
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

}  // namespace

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

void DecoderModel::read_hf_rest(const HfConfig& hf) {
  const std::string activation = hf.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    hf.refuse("hidden_act", activation, "only \"silu\", also called \"swish\", is supported");
  if (hf.flag_or("mlp_bias", false))
    hf.refuse("mlp_bias", true, "feed-forward layers with a bias are not supported");
  hf.require("partial_rotary_factor", 1);
  hf.require("is_causal", true);
  read_hf_rope(hf, config.rope_theta, config.rope_scaling);
  if (traits_.layer_windows) refuse_layer_windows(hf);
}

void DecoderModel::write_hf_rest(int64_t seq_len, nlohmann::json& json) const {
  json.update({{"hidden_act", "silu"},
               {"head_dim", config.head_dim()},  // a number for every reader
               {"max_position_embeddings", seq_len},
               {"use_cache", true},
               {"bos_token_id", nullptr},
               {"eos_token_id", nullptr}});
  write_hf_rope(config.rope_theta, config.rope_scaling, json);
  if (traits_.layer_windows) json["use_sliding_window"] = false;
}

nlohmann::json DecoderModel::hf_defaults() const {
  nlohmann::json defaults = {{"max_position_embeddings", traits_.max_positions},
                             {"use_cache", true}};
  // An id outside of the vocabulary is no token of this model's.
  for (const auto& [key, id] : traits_.token_ids.items())
    defaults[key] = id.is_null() || id < config.vocab_size ? id : nlohmann::json();
  return defaults;
}

HfTensors DecoderModel::hf_tensors() const {
  HfTensors tensors;
  tensors.architecture = traits_.architecture;
  tensors.base_prefix = "model.";
  tensors.head = "lm_head.weight";
  if (config.tie_word_embeddings) tensors.tied = {"lm_head.weight", "model.embed_tokens.weight"};
  tensors.ignored = {"rotary_emb.inv_freq"};
  return tensors;
}

}  // namespace tessera

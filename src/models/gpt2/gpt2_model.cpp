// GPT-2's keys, rules and Hugging Face form; its stages are gpt2.cpp's.
#include <fmt/format.h>

#include "base/divisors.h"
#include "base/fields/field_kinds.h"
#include "models/activation_keys.h"
#include "models/gpt2/gpt2.h"
#include "models/model_list.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"

namespace tessera {
namespace {

class Gpt2Model : public Cloned<Gpt2Model> {
 public:
  std::string type() const override { return "gpt2"; }
  ModelInput input() const override {
    return {.kind = DataKind::kTokens, .vocab_size = c_.vocab_size};
  }

  std::vector<ModelKey> keys() override;
  void check(int64_t seq_len, RuleReport& report) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t, Mesh& mesh,
                                                  const ModelOptions& options) const override {
    return make_gpt2(c_, mesh, options);
  }
  nlohmann::json hf_defaults() const override;
  HfTensors hf_tensors() const override;

 private:
  void read_hf_rest(const HfConfig& hf) override;
  void write_hf_rest(int64_t seq_len, nlohmann::json& json) const override;

  Gpt2Config c_;
};

std::vector<ModelKey> Gpt2Model::keys() {
  return {
      {.name = "n_embd",
       .value = integer(c_.n_embd, 1, kMaxSize),
       .doc = "Width of the residual stream.",
       .aliases = {"hidden_size", "d_model"},
       .required = true,
       .hf = HfKey{}},
      {.name = "n_layer",
       .value = integer(c_.n_layer, 1, kMaxSize),
       .doc = "Number of blocks.",
       .aliases = {"num_hidden_layers", "num_layers"},
       .required = true,
       .hf = HfKey{}},
      {.name = "n_head",
       .value = integer(c_.n_head, 1, kMaxSize),
       .doc = "Attention heads; divides n_embd.",
       .aliases = {"num_attention_heads", "num_heads"},
       .required = true,
       .hf = HfKey{}},
      {.name = "n_inner",
       .value = integer_or("auto", c_.n_inner, 1, kMaxSize),
       .doc = "Width of the feed-forward layer. auto: 4 n_embd.",
       .aliases = {"intermediate_size"},
       .hf = HfKey{.left_out = nullptr, .null = nullptr}},
      {.name = "n_positions",
       .value = integer(c_.n_positions, 1, kMaxSize),
       .doc = "Learned positions; data.seq_len is at most that.",
       .aliases = {"max_position_embeddings", "n_ctx"},
       .hf = HfKey{.left_out = 1024}},
      {.name = "vocab_size",
       .value = integer(c_.vocab_size, 1, kMaxSize),
       .doc = "Number of token ids.",
       .required = true,
       .hf = HfKey{}},
      {.name = "activation_function",
       .value = activation_choice(c_.activation_function),
       .doc = "gelu_new: GELU by its approximation with tanh.",
       .aliases = {"hidden_act"},
       .hf = HfKey{.left_out = "gelu_new", .words = hf_activation_words()}},
      {.name = "layer_norm_epsilon",
       .value = RealValue{&c_.layer_norm_epsilon, above(0)},
       .doc = "Added to the variance in LayerNorm.",
       .aliases = {"layernorm_epsilon", "norm_eps"},
       .hf = HfKey{.left_out = 1e-5}},
      {.name = "tie_word_embeddings",
       .value = FlagValue{&c_.tie_word_embeddings},
       .doc = "Output layer and embedding share their weights.",
       .hf = HfKey{.left_out = true}},
      {.name = "initializer_range",
       .value = RealValue{&c_.initializer_range, at_least(0)},
       .doc = "Standard deviation of the initial weights; divided by sqrt(2 n_layer) for what adds "
              "to the residual stream.",
       .aliases = {"init_method_std"},
       .role = KeyRole::kInitialSpread,
       .hf = HfKey{.left_out = 0.02}},
      {.name = "attn_pdrop",
       .value = RealValue{&c_.attn_pdrop, kRate},
       .doc = "Part of the attention probabilities that is dropped in training.",
       .aliases = {"attention_dropout", "attn_dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.1}},
      {.name = "resid_pdrop",
       .value = RealValue{&c_.resid_pdrop, kRate},
       .doc = "Part of what each layer adds to the residual stream that is dropped in training.",
       .aliases = {"hidden_dropout", "residual_dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.1}},
      {.name = "embd_pdrop",
       .value = RealValue{&c_.embd_pdrop, kRate},
       .doc = "Part of the embedding's output that is dropped in training.",
       .aliases = {"embedding_dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.1}},
  };
}

void Gpt2Model::check(int64_t seq_len, RuleReport& report) const {
  if (c_.n_embd % c_.n_head != 0)
    report.broken({"model.n_head", "model.n_embd"},
                  "model.n_head: {}; must divide model.n_embd {}; these would: {}", c_.n_head,
                  c_.n_embd, divisors(c_.n_embd));
  if (seq_len > c_.n_positions)
    report.broken(
        {"data.seq_len", "model.n_positions"},
        "data.seq_len: {}; the model has {} learned positions (model.n_positions); shorten the "
        "sequence, or raise n_positions for a new model",
        seq_len, c_.n_positions);
}

std::string Gpt2Model::why_not_tp(int64_t tp) const {
  if (c_.n_head % tp != 0) return fmt::format("must divide model.n_head {}", c_.n_head);
  if (c_.inner() % tp != 0) return fmt::format("must divide model.n_inner {}", c_.inner());
  if (c_.vocab_size < tp) return fmt::format("must be at most model.vocab_size {}", c_.vocab_size);
  return {};
}

void Gpt2Model::read_hf_rest(const HfConfig& hf) {
  if (c_.n_inner == 4 * c_.n_embd) c_.n_inner = 0;  // one spelling of the same
  hf.require("scale_attn_weights", true);
  hf.require("scale_attn_by_inverse_layer_idx", false);
  hf.require("add_cross_attention", false);
  hf.require("is_causal", true);
  // Other names of the same, which transformers reads as well.
  hf.require("hidden_size", c_.n_embd);
  hf.require("num_hidden_layers", c_.n_layer);
  hf.require("num_attention_heads", c_.n_head);
  hf.require("max_position_embeddings", c_.n_positions);
}

void Gpt2Model::write_hf_rest(int64_t, nlohmann::json& json) const {
  json.update({{"scale_attn_weights", true},
               {"scale_attn_by_inverse_layer_idx", false},
               {"use_cache", true},
               {"bos_token_id", nullptr},
               {"eos_token_id", nullptr}});
}

nlohmann::json Gpt2Model::hf_defaults() const {
  const nlohmann::json end = c_.vocab_size > 50256 ? nlohmann::json(50256) : nlohmann::json();
  return {
      {"use_cache", true}, {"bos_token_id", end}, {"eos_token_id", end}, {"pad_token_id", nullptr}};
}

// Its files hold matrices as [in, out] (Conv1D of transformers), and q, k and v in one.
HfTensors Gpt2Model::hf_tensors() const {
  HfTensors names;
  names.architecture = "GPT2LMHeadModel";
  if (c_.tie_word_embeddings) names.tied = {"lm_head.weight", "transformer.wte.weight"};
  names.base_prefix = "transformer.";
  names.head = "lm_head.weight";
  names.ignored = {".attn.bias", ".attn.masked_bias"};
  for (int64_t i = 0; i < c_.n_layer; ++i) {
    const std::string block = fmt::format("transformer.h.{}.", i);
    const auto parts = [&](const char* end) {
      return std::vector<std::string>{block + "attn.q." + end, block + "attn.k." + end,
                                      block + "attn.v." + end};
    };
    names.tensors.push_back({block + "attn.c_attn.weight", parts("weight"), true});
    names.tensors.push_back({block + "attn.c_attn.bias", parts("bias"), false});
    for (const char* matrix : {"attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"})
      names.tensors.push_back({block + matrix, {block + matrix}, true});
  }
  return names;
}

}  // namespace

std::unique_ptr<Model> make_gpt2_model() {
  return std::make_unique<Gpt2Model>();
}

}  // namespace tessera

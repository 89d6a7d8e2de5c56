// GPT-2's keys, rules and Hugging Face form; its stages are gpt2.cpp's.
#include <fmt/format.h>

#include "base/divisors.h"
#include "base/fields/field_kinds.h"
#include "models/activation_names.h"
#include "models/gpt2/gpt2.h"
#include "models/model_list.h"
#include "models/model_options.h"
#include "parallel/executor/stage.h"

namespace tessera {
namespace {

class Gpt2Model : public Model {
 public:
  std::unique_ptr<Model> clone() const override { return std::make_unique<Gpt2Model>(*this); }
  std::string type() const override { return "gpt2"; }
  ModelInput input() const override {
    return {.kind = DataKind::kTokens, .vocab_size = c_.vocab_size};
  }

  std::vector<Field> fields() override;
  void check(int64_t seq_len, RuleReport& report) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t, Mesh& mesh,
                                                  const ModelOptions& options) const override {
    return make_gpt2(c_, mesh, options);
  }
  void read_hf_config(const HfConfig& hf) override;
  nlohmann::json hf_config(int64_t seq_len) const override;
  nlohmann::json hf_defaults() const override;
  HfTensors hf_tensors() const override;

 private:
  Gpt2Config c_;
};

std::vector<Field> Gpt2Model::fields() {
  return {
      {"n_embd",
       integer(c_.n_embd, 1, kMaxSize),
       true,
       kMathematics,
       "Width of the residual stream.",
       {"hidden_size", "d_model"}},
      {"n_layer",
       integer(c_.n_layer, 1, kMaxSize),
       true,
       kMathematics,
       "Number of blocks.",
       {"num_hidden_layers", "num_layers"}},
      {"n_head",
       integer(c_.n_head, 1, kMaxSize),
       true,
       kMathematics,
       "Attention heads; divides n_embd.",
       {"num_attention_heads", "num_heads"}},
      {"n_inner",
       integer_or("auto", c_.n_inner, 1, kMaxSize),
       false,
       kMathematics,
       "Width of the feed-forward layer. auto: 4 n_embd.",
       {"intermediate_size"}},
      {"n_positions",
       integer(c_.n_positions, 1, kMaxSize),
       false,
       kMathematics,
       "Learned positions; data.seq_len is at most that.",
       {"max_position_embeddings", "n_ctx"}},
      {"vocab_size",
       integer(c_.vocab_size, 1, kMaxSize),
       true,
       kMathematics,
       "Number of token ids.",
       {}},
      {"activation_function",
       choice(c_.activation_function, activation_names()),
       false,
       kMathematics,
       "gelu_new: GELU by its approximation with tanh.",
       {"hidden_act"}},
      {"layer_norm_epsilon",
       RealValue{&c_.layer_norm_epsilon, above(0)},
       false,
       kMathematics,
       "Added to the variance in LayerNorm.",
       {"layernorm_epsilon", "norm_eps"}},
      {"tie_word_embeddings",
       FlagValue{&c_.tie_word_embeddings},
       false,
       kMathematics,
       "Output layer and embedding share their weights.",
       {}},
      {"initializer_range",
       RealValue{&c_.initializer_range, at_least(0)},
       false,
       kMathematics,
       "Standard deviation of the initial weights; divided by sqrt(2 n_layer) for what adds to the "
       "residual stream.",
       {"init_method_std"}},
      {"attn_pdrop",
       RealValue{&c_.attn_pdrop, kRate},
       false,
       kMathematics,
       "Part of the attention probabilities that is dropped in training.",
       {"attention_dropout", "attn_dropout"}},
      {"resid_pdrop",
       RealValue{&c_.resid_pdrop, kRate},
       false,
       kMathematics,
       "Part of what each layer adds to the residual stream that is dropped in training.",
       {"hidden_dropout", "residual_dropout"}},
      {"embd_pdrop",
       RealValue{&c_.embd_pdrop, kRate},
       false,
       kMathematics,
       "Part of the embedding's output that is dropped in training.",
       {"embedding_dropout"}},
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

void Gpt2Model::read_hf_config(const HfConfig& hf) {
  c_.n_embd = hf.size("n_embd");
  c_.n_layer = hf.size("n_layer");
  c_.n_head = hf.size("n_head");
  c_.n_inner = hf.has("n_inner") ? hf.size("n_inner") : 0;
  if (c_.n_inner == 4 * c_.n_embd) c_.n_inner = 0;
  c_.n_positions = hf.size_or("n_positions", 1024);
  c_.vocab_size = hf.size("vocab_size");
  c_.activation_function = read_hf_activation(hf, "activation_function", Activation::kGeluTanh);
  c_.layer_norm_epsilon = hf.number_or("layer_norm_epsilon", 1e-5);
  c_.initializer_range = hf.number_or("initializer_range", 0.02);
  c_.tie_word_embeddings = hf.flag_or("tie_word_embeddings", true);
  c_.attn_pdrop = hf.rate_or("attn_pdrop", 0.1);
  c_.resid_pdrop = hf.rate_or("resid_pdrop", 0.1);
  c_.embd_pdrop = hf.rate_or("embd_pdrop", 0.1);
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

nlohmann::json Gpt2Model::hf_config(int64_t) const {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", c_.n_embd},
          {"n_layer", c_.n_layer},
          {"n_head", c_.n_head},
          {"n_inner", c_.n_inner ? nlohmann::json(c_.n_inner) : nlohmann::json()},
          {"n_positions", c_.n_positions},
          {"vocab_size", c_.vocab_size},
          {"activation_function", activation_name(c_.activation_function)},
          {"layer_norm_epsilon", c_.layer_norm_epsilon},
          {"initializer_range", c_.initializer_range},
          {"tie_word_embeddings", c_.tie_word_embeddings},
          {"attn_pdrop", c_.attn_pdrop},
          {"resid_pdrop", c_.resid_pdrop},
          {"embd_pdrop", c_.embd_pdrop},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"use_cache", true},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
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

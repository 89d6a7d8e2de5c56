// The encoder-decoder's keys, rules and config.json; its stages are transformer.cpp's.
#include <fmt/format.h>

#include "base/divisors.h"
#include "base/fields/field_kinds.h"
#include "models/activation_names.h"
#include "models/model_list.h"
#include "models/transformer/transformer.h"

namespace tessera {
namespace {

constexpr const char* kType = "transformer";

class TransformerModel : public Model {
 public:
  std::unique_ptr<Model> clone() const override {
    return std::make_unique<TransformerModel>(*this);
  }
  std::string type() const override { return kType; }
  ModelInput input() const override {
    return {.kind = DataKind::kPairs, .vocab_size = c_.vocab_size};
  }

  std::vector<Field> fields() override;
  void check(int64_t seq_len, RuleReport& report) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t, Mesh& mesh,
                                                  const ModelOptions& options) const override {
    return make_transformer(c_, mesh, options);
  }
  // transformers has no such model: this program's own config.json beside torch.nn.Transformer's
  // names.
  void read_hf_config(const HfConfig& hf) override;
  nlohmann::json hf_config(int64_t seq_len) const override;
  HfTensors hf_tensors() const override;

 private:
  TransformerConfig c_;
};

std::vector<Field> TransformerModel::fields() {
  return {
      {"d_model",
       integer(c_.d_model, 1, kMaxSize),
       true,
       kMathematics,
       "Width of the residual stream, even.",
       {"hidden_size", "dim"}},
      {"nhead",
       integer(c_.nhead, 1, kMaxSize),
       true,
       kMathematics,
       "Attention heads; divides d_model.",
       {"num_attention_heads", "num_heads"}},
      {"num_encoder_layers",
       integer(c_.num_encoder_layers, 1, kMaxSize),
       true,
       kMathematics,
       "Layers of the encoder.",
       {"encoder_layers"}},
      {"num_decoder_layers",
       integer(c_.num_decoder_layers, 1, kMaxSize),
       true,
       kMathematics,
       "Layers of the decoder.",
       {"decoder_layers"}},
      {"dim_feedforward",
       integer(c_.dim_feedforward, 1, kMaxSize),
       true,
       kMathematics,
       "Width of the feed-forward layer.",
       {"intermediate_size", "ffn_hidden_size"}},
      {"vocab_size",
       integer(c_.vocab_size, 1, kMaxSize),
       true,
       kMathematics,
       "Number of token ids, of sources and targets.",
       {}},
      {"activation",
       choice(c_.activation, activation_names()),
       false,
       kMathematics,
       "Of the feed-forward layer. gelu_new: GELU by its approximation with tanh.",
       {"hidden_act"}},
      {"norm_first",
       FlagValue{&c_.norm_first},
       false,
       kMathematics,
       "true: x + f(norm(x)); false: norm(x + f(x)), as in the original paper.",
       {"pre_norm"}},
      {"layer_norm_eps",
       RealValue{&c_.layer_norm_eps, above(0)},
       false,
       kMathematics,
       "Added to the variance in LayerNorm.",
       {"norm_eps"}},
      {"tie_word_embeddings",
       FlagValue{&c_.tie_word_embeddings},
       false,
       kMathematics,
       "Both embeddings and the output layer share their weights.",
       {}},
      {"initializer_range",
       RealValue{&c_.initializer_range, at_least(0)},
       false,
       kMathematics,
       "Standard deviation of the initial weights.",
       {"init_method_std"}},
      {"hidden_dropout",
       RealValue{&c_.hidden_dropout, kRate},
       false,
       kMathematics,
       "Part of the embeddings, and of what each sublayer adds, that is dropped in training.",
       {"dropout"}},
      {"attention_dropout",
       RealValue{&c_.attention_dropout, kRate},
       false,
       kMathematics,
       "Part of attention's probabilities that is dropped in training.",
       {"attn_dropout"}},
      {"activation_dropout",
       RealValue{&c_.activation_dropout, kRate},
       false,
       kMathematics,
       "Part of what the activation of a feed-forward layer gives that is dropped in training.",
       {"relu_dropout"}},
  };
}

void TransformerModel::check(int64_t, RuleReport& report) const {
  if (c_.d_model % 2 != 0)
    report.broken(
        {"model.d_model"},
        "model.d_model: {}; must be even: positions are pairs of a sine and a cosine; {} or "
        "{} would do",
        c_.d_model, c_.d_model - 1, c_.d_model + 1);
  if (c_.d_model % c_.nhead != 0)
    report.broken({"model.nhead", "model.d_model"},
                  "model.nhead: {}; must divide model.d_model {}; these would: {}", c_.nhead,
                  c_.d_model, divisors(c_.d_model));
}

std::string TransformerModel::why_not_tp(int64_t tp) const {
  if (c_.nhead % tp != 0) return fmt::format("must divide model.nhead {}", c_.nhead);
  if (c_.dim_feedforward % tp != 0)
    return fmt::format("must divide model.dim_feedforward {}", c_.dim_feedforward);
  if (c_.vocab_size < tp) return fmt::format("must be at most model.vocab_size {}", c_.vocab_size);
  return {};
}

void TransformerModel::read_hf_config(const HfConfig& hf) {
  c_.d_model = hf.size("d_model");
  c_.nhead = hf.size("nhead");
  c_.num_encoder_layers = hf.size("num_encoder_layers");
  c_.num_decoder_layers = hf.size("num_decoder_layers");
  c_.dim_feedforward = hf.size("dim_feedforward");
  c_.vocab_size = hf.size("vocab_size");
  c_.activation = activation_of(hf, "activation", hf.text_or("activation", "relu"));
  c_.norm_first = hf.flag_or("norm_first", false);
  c_.layer_norm_eps = hf.number_or("layer_norm_eps", 1e-5);
  c_.tie_word_embeddings = hf.flag_or("tie_word_embeddings", false);
  c_.initializer_range = hf.number_or("initializer_range", 0.02);
  c_.hidden_dropout = hf.rate_or("hidden_dropout", 0.0);
  c_.attention_dropout = hf.rate_or("attention_dropout", 0.0);
  c_.activation_dropout = hf.rate_or("activation_dropout", 0.0);
}

nlohmann::json TransformerModel::hf_config(int64_t) const {
  return {{"model_type", kType},
          {"d_model", c_.d_model},
          {"nhead", c_.nhead},
          {"num_encoder_layers", c_.num_encoder_layers},
          {"num_decoder_layers", c_.num_decoder_layers},
          {"dim_feedforward", c_.dim_feedforward},
          {"vocab_size", c_.vocab_size},
          {"activation", activation_name(c_.activation)},
          {"norm_first", c_.norm_first},
          {"layer_norm_eps", c_.layer_norm_eps},
          {"tie_word_embeddings", c_.tie_word_embeddings},
          {"initializer_range", c_.initializer_range},
          {"hidden_dropout", c_.hidden_dropout},
          {"attention_dropout", c_.attention_dropout},
          {"activation_dropout", c_.activation_dropout}};
}

// The state_dict of torch.nn.Transformer, which holds q, k and v of an attention in one; embeddings
// and output, which lie outside of it, keep our names.
HfTensors TransformerModel::hf_tensors() const {
  HfTensors names;
  const auto add_attention = [&](const std::string& prefix) {
    for (const std::string kind : {"weight", "bias"})
      names.tensors.push_back(
          {prefix + "in_proj_" + kind,
           {prefix + "q_proj." + kind, prefix + "k_proj." + kind, prefix + "v_proj." + kind}});
  };
  for (int64_t i = 0; i < c_.num_encoder_layers; ++i)
    add_attention(fmt::format("encoder.layers.{}.self_attn.", i));
  for (int64_t i = 0; i < c_.num_decoder_layers; ++i) {
    add_attention(fmt::format("decoder.layers.{}.self_attn.", i));
    add_attention(fmt::format("decoder.layers.{}.multihead_attn.", i));
  }
  return names;
}

}  // namespace

std::unique_ptr<Model> make_transformer_model() {
  return std::make_unique<TransformerModel>();
}

}  // namespace tessera

// The encoder-decoder's keys, rules and config.json; its stages are transformer.cpp's.
#include <fmt/format.h>

#include "base/divisors.h"
#include "base/fields/field_kinds.h"
#include "models/activation_keys.h"
#include "models/model_list.h"
#include "models/transformer/transformer.h"

namespace tessera {
namespace {

class TransformerModel : public Cloned<TransformerModel> {
 public:
  std::string type() const override { return "transformer"; }
  ModelInput input() const override {
    return {.kind = DataKind::kPairs, .vocab_size = c_.vocab_size};
  }

  std::vector<ModelKey> keys() override;
  void check(int64_t seq_len, RuleReport& report) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t, Mesh& mesh,
                                                  const ModelOptions& options) const override {
    return make_transformer(c_, mesh, options);
  }
  HfTensors hf_tensors() const override;

 private:
  // transformers has no such model: config.json is this program's own, by torch.nn.Transformer's
  // names.
  void read_hf_rest(const HfConfig&) override {}
  void write_hf_rest(int64_t, nlohmann::json&) const override {}

  TransformerConfig c_;
};

std::vector<ModelKey> TransformerModel::keys() {
  return {
      {.name = "d_model",
       .value = integer(c_.d_model, 1, kMaxSize),
       .doc = "Width of the residual stream, even.",
       .aliases = {"hidden_size", "dim"},
       .required = true,
       .hf = HfKey{}},
      {.name = "nhead",
       .value = integer(c_.nhead, 1, kMaxSize),
       .doc = "Attention heads; divides d_model.",
       .aliases = {"num_attention_heads", "num_heads"},
       .required = true,
       .hf = HfKey{}},
      {.name = "num_encoder_layers",
       .value = integer(c_.num_encoder_layers, 1, kMaxSize),
       .doc = "Layers of the encoder.",
       .aliases = {"encoder_layers"},
       .required = true,
       .hf = HfKey{}},
      {.name = "num_decoder_layers",
       .value = integer(c_.num_decoder_layers, 1, kMaxSize),
       .doc = "Layers of the decoder.",
       .aliases = {"decoder_layers"},
       .required = true,
       .hf = HfKey{}},
      {.name = "dim_feedforward",
       .value = integer(c_.dim_feedforward, 1, kMaxSize),
       .doc = "Width of the feed-forward layer.",
       .aliases = {"intermediate_size", "ffn_hidden_size"},
       .required = true,
       .hf = HfKey{}},
      {.name = "vocab_size",
       .value = integer(c_.vocab_size, 1, kMaxSize),
       .doc = "Number of token ids, of sources and targets.",
       .required = true,
       .hf = HfKey{}},
      {.name = "activation",
       .value = activation_choice(c_.activation),
       .doc = "Of the feed-forward layer. gelu_new: GELU by its approximation with tanh.",
       .aliases = {"hidden_act"},
       .hf = HfKey{.left_out = "relu"}},
      {.name = "norm_first",
       .value = FlagValue{&c_.norm_first},
       .doc = "true: x + f(norm(x)); false: norm(x + f(x)), as in the original paper.",
       .aliases = {"pre_norm"},
       .hf = HfKey{.left_out = false}},
      {.name = "layer_norm_eps",
       .value = RealValue{&c_.layer_norm_eps, above(0)},
       .doc = "Added to the variance in LayerNorm.",
       .aliases = {"norm_eps"},
       .hf = HfKey{.left_out = 1e-5}},
      {.name = "tie_word_embeddings",
       .value = FlagValue{&c_.tie_word_embeddings},
       .doc = "Both embeddings and the output layer share their weights.",
       .hf = HfKey{.left_out = false}},
      {.name = "initializer_range",
       .value = RealValue{&c_.initializer_range, at_least(0)},
       .doc = "Standard deviation of the initial weights.",
       .aliases = {"init_method_std"},
       .role = KeyRole::kInitialSpread,
       .hf = HfKey{.left_out = 0.02}},
      {.name = "hidden_dropout",
       .value = RealValue{&c_.hidden_dropout, kRate},
       .doc =
           "Part of the embeddings, and of what each sublayer adds, that is dropped in training.",
       .aliases = {"dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.0}},
      {.name = "attention_dropout",
       .value = RealValue{&c_.attention_dropout, kRate},
       .doc = "Part of attention's probabilities that is dropped in training.",
       .aliases = {"attn_dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.0}},
      {.name = "activation_dropout",
       .value = RealValue{&c_.activation_dropout, kRate},
       .doc =
           "Part of what the activation of a feed-forward layer gives that is dropped in training.",
       .aliases = {"relu_dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.0}},
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

// ViT's keys, rules and Hugging Face form; its stages are vit.cpp's.
#include <fmt/format.h>

#include "base/divisors.h"
#include "base/fields/field_kinds.h"
#include "models/activation_names.h"
#include "models/model_list.h"
#include "models/vit/vit.h"

namespace tessera {
namespace {

class VitModel : public Model {
 public:
  std::unique_ptr<Model> clone() const override { return std::make_unique<VitModel>(*this); }
  std::string type() const override { return "vit"; }
  ModelInput input() const override {
    return {.kind = DataKind::kImages,
            .vocab_size = 0,
            .image_shape = {c_.num_channels, c_.image_size, c_.image_size},
            .image_tokens = c_.num_patches() + 1,
            .num_labels = c_.num_labels};
  }

  std::vector<Field> fields() override;
  void check(int64_t seq_len, RuleReport& report) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t, Mesh& mesh,
                                                  const ModelOptions& options) const override {
    return make_vit(c_, mesh, options);
  }
  void read_hf_config(const HfConfig& hf) override;
  nlohmann::json hf_config(int64_t seq_len) const override;
  HfTensors hf_tensors() const override {
    HfTensors names;
    names.architecture = "ViTForImageClassification";
    names.base_prefix = "vit.";
    names.head = "classifier.weight";
    return names;
  }

 private:
  VitConfig c_;
};

std::vector<Field> VitModel::fields() {
  return {
      {"hidden_size",
       integer(c_.hidden_size, 1, kMaxSize),
       true,
       kMathematics,
       "Width of the residual stream.",
       {"dim", "d_model"}},
      {"intermediate_size",
       integer(c_.intermediate_size, 1, kMaxSize),
       true,
       kMathematics,
       "Width of the feed-forward layer.",
       {"ffn_hidden_size"}},
      {"num_hidden_layers",
       integer(c_.num_hidden_layers, 1, kMaxSize),
       true,
       kMathematics,
       "Number of blocks.",
       {"num_layers", "depth"}},
      {"num_attention_heads",
       integer(c_.num_attention_heads, 1, kMaxSize),
       true,
       kMathematics,
       "Attention heads; divides hidden_size.",
       {"num_heads"}},
      {"image_size",
       integer(c_.image_size, 1, kMaxSize),
       false,
       kMathematics,
       "Height and width of an image.",
       {"img_size"}},
      {"patch_size",
       integer(c_.patch_size, 1, kMaxSize),
       false,
       kMathematics,
       "Height and width of a patch; divides image_size.",
       {}},
      {"num_channels",
       integer(c_.num_channels, 1, kMaxSize),
       false,
       kMathematics,
       "Channels of an image.",
       {"in_chans"}},
      {"num_labels",
       integer(c_.num_labels, 2, kMaxSize),
       true,
       kMathematics,
       "Number of classes.",
       {"num_classes"}},
      {"hidden_act",
       choice(c_.hidden_act, activation_names()),
       false,
       kMathematics,
       "gelu_new: GELU by its approximation with tanh.",
       {"activation"}},
      {"qkv_bias",
       FlagValue{&c_.qkv_bias},
       false,
       kMathematics,
       "Queries, keys and values have a bias.",
       {}},
      {"layer_norm_eps",
       RealValue{&c_.layer_norm_eps, above(0)},
       false,
       kMathematics,
       "Added to the variance in LayerNorm.",
       {"norm_eps"}},
      {"initializer_range",
       RealValue{&c_.initializer_range, at_least(0)},
       false,
       kMathematics,
       "Standard deviation of the initial weights.",
       {"init_method_std"}},
      {"hidden_dropout_prob",
       RealValue{&c_.hidden_dropout, kRate},
       false,
       kMathematics,
       "Part of the embeddings, and of what each layer adds, that is dropped in training.",
       {"hidden_dropout", "dropout"}},
      {"attention_probs_dropout_prob",
       RealValue{&c_.attention_dropout, kRate},
       false,
       kMathematics,
       "Part of attention's probabilities that is dropped in training.",
       {"attention_dropout", "attn_dropout"}},
  };
}

void VitModel::check(int64_t, RuleReport& report) const {
  if (c_.hidden_size % c_.num_attention_heads != 0)
    report.broken(
        {"model.num_attention_heads", "model.hidden_size"},
        "model.num_attention_heads: {}; must divide model.hidden_size {}; these would: {}",
        c_.num_attention_heads, c_.hidden_size, divisors(c_.hidden_size));
  if (c_.image_size % c_.patch_size != 0)
    report.broken({"model.patch_size", "model.image_size"},
                  "model.patch_size: {}; must divide model.image_size {}; these would: {}",
                  c_.patch_size, c_.image_size, divisors(c_.image_size));
}

std::string VitModel::why_not_tp(int64_t tp) const {
  if (c_.num_attention_heads % tp != 0)
    return fmt::format("must divide model.num_attention_heads {}", c_.num_attention_heads);
  if (c_.intermediate_size % tp != 0)
    return fmt::format("must divide model.intermediate_size {}", c_.intermediate_size);
  if (c_.num_labels < tp) return fmt::format("must be at most model.num_labels {}", c_.num_labels);
  return {};
}

// The number of classes of a config.json: transformers writes their names alone, and leaves out two
// by its own naming. By one it means a regression.
int64_t labels_of(const HfConfig& hf) {
  if (hf.has("num_labels")) {
    const int64_t count = hf.size("num_labels");
    if (count < 2) hf.refuse("num_labels", count, "must be at least 2 classes");
    return count;
  }
  if (!hf.has("id2label")) return 2;
  const auto& names = hf.json()["id2label"];
  if (!names.is_object() || names.size() < 2)
    hf.refuse("id2label", names, "must be a map of the numbers of at least 2 classes to names");
  return static_cast<int64_t>(names.size());
}

void VitModel::read_hf_config(const HfConfig& hf) {
  hf.require("problem_type", "single_label_classification");  // the loss is cross-entropy
  c_.hidden_size = hf.size_or("hidden_size", 768);
  c_.intermediate_size = hf.size_or("intermediate_size", 3072);
  c_.num_hidden_layers = hf.size_or("num_hidden_layers", 12);
  c_.num_attention_heads = hf.size_or("num_attention_heads", 12);
  c_.image_size = hf.size_or("image_size", 224);
  c_.patch_size = hf.size_or("patch_size", 16);
  c_.num_channels = hf.size_or("num_channels", 3);
  c_.num_labels = labels_of(hf);
  c_.hidden_act = read_hf_activation(hf, "hidden_act", Activation::kGelu);
  c_.qkv_bias = hf.flag_or("qkv_bias", true);
  c_.layer_norm_eps = hf.number_or("layer_norm_eps", 1e-12);
  c_.initializer_range = hf.number_or("initializer_range", 0.02);
  c_.hidden_dropout = hf.rate_or("hidden_dropout_prob", 0.0);
  c_.attention_dropout = hf.rate_or("attention_probs_dropout_prob", 0.0);
}

nlohmann::json VitModel::hf_config(int64_t) const {
  nlohmann::json names = nlohmann::json::object(), numbers = nlohmann::json::object();
  for (int64_t i = 0; i < c_.num_labels; ++i) {
    const std::string name = fmt::format("LABEL_{}", i);
    names[std::to_string(i)] = name;
    numbers[name] = i;
  }
  return {{"architectures", {"ViTForImageClassification"}},
          {"model_type", "vit"},
          {"hidden_size", c_.hidden_size},
          {"intermediate_size", c_.intermediate_size},
          {"num_hidden_layers", c_.num_hidden_layers},
          {"num_attention_heads", c_.num_attention_heads},
          {"image_size", c_.image_size},
          {"patch_size", c_.patch_size},
          {"num_channels", c_.num_channels},
          {"id2label", names},
          {"label2id", numbers},
          {"hidden_act", activation_name(c_.hidden_act)},
          {"qkv_bias", c_.qkv_bias},
          {"layer_norm_eps", c_.layer_norm_eps},
          {"initializer_range", c_.initializer_range},
          {"hidden_dropout_prob", c_.hidden_dropout},
          {"attention_probs_dropout_prob", c_.attention_dropout}};
}

}  // namespace

std::unique_ptr<Model> make_vit_model() {
  return std::make_unique<VitModel>();
}

}  // namespace tessera

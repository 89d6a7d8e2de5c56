// ViT's keys, rules and Hugging Face form; its stages are vit.cpp's.
#include <fmt/format.h>

#include "base/divisors.h"
#include "base/fields/field_kinds.h"
#include "models/activation_keys.h"
#include "models/model_list.h"
#include "models/vit/vit.h"

namespace tessera {
namespace {

class VitModel : public Cloned<VitModel> {
 public:
  std::string type() const override { return "vit"; }
  ModelInput input() const override {
    return {.kind = DataKind::kImages,
            .vocab_size = 0,
            .image_shape = {c_.num_channels, c_.image_size, c_.image_size},
            .image_tokens = c_.num_patches() + 1,
            .num_labels = c_.num_labels};
  }

  std::vector<ModelKey> keys() override;
  void check(int64_t seq_len, RuleReport& report) const override;
  std::string why_not_tp(int64_t tp) const override;
  std::vector<std::unique_ptr<Stage>> make_stages(int64_t, Mesh& mesh,
                                                  const ModelOptions& options) const override {
    return make_vit(c_, mesh, options);
  }
  HfTensors hf_tensors() const override {
    HfTensors names;
    names.architecture = "ViTForImageClassification";
    names.base_prefix = "vit.";
    names.head = "classifier.weight";
    return names;
  }

 private:
  void read_hf_rest(const HfConfig& hf) override;
  void write_hf_rest(int64_t seq_len, nlohmann::json& json) const override;

  VitConfig c_;
};

std::vector<ModelKey> VitModel::keys() {
  return {
      {.name = "hidden_size",
       .value = integer(c_.hidden_size, 1, kMaxSize),
       .doc = "Width of the residual stream.",
       .aliases = {"dim", "d_model"},
       .required = true,
       .hf = HfKey{.left_out = 768}},
      {.name = "intermediate_size",
       .value = integer(c_.intermediate_size, 1, kMaxSize),
       .doc = "Width of the feed-forward layer.",
       .aliases = {"ffn_hidden_size"},
       .required = true,
       .hf = HfKey{.left_out = 3072}},
      {.name = "num_hidden_layers",
       .value = integer(c_.num_hidden_layers, 1, kMaxSize),
       .doc = "Number of blocks.",
       .aliases = {"num_layers", "depth"},
       .required = true,
       .hf = HfKey{.left_out = 12}},
      {.name = "num_attention_heads",
       .value = integer(c_.num_attention_heads, 1, kMaxSize),
       .doc = "Attention heads; divides hidden_size.",
       .aliases = {"num_heads"},
       .required = true,
       .hf = HfKey{.left_out = 12}},
      {.name = "image_size",
       .value = integer(c_.image_size, 1, kMaxSize),
       .doc = "Height and width of an image.",
       .aliases = {"img_size"},
       .hf = HfKey{.left_out = 224}},
      {.name = "patch_size",
       .value = integer(c_.patch_size, 1, kMaxSize),
       .doc = "Height and width of a patch; divides image_size.",
       .hf = HfKey{.left_out = 16}},
      {.name = "num_channels",
       .value = integer(c_.num_channels, 1, kMaxSize),
       .doc = "Channels of an image.",
       .aliases = {"in_chans"},
       .hf = HfKey{.left_out = 3}},
      {.name = "num_labels",
       .value = integer(c_.num_labels, 2, kMaxSize),
       .doc = "Number of classes.",
       .aliases = {"num_classes"},
       .required = true},
      {.name = "hidden_act",
       .value = activation_choice(c_.hidden_act),
       .doc = "gelu_new: GELU by its approximation with tanh.",
       .aliases = {"activation"},
       .hf = HfKey{.left_out = "gelu", .words = hf_activation_words()}},
      {.name = "qkv_bias",
       .value = FlagValue{&c_.qkv_bias},
       .doc = "Queries, keys and values have a bias.",
       .hf = HfKey{.left_out = true}},
      {.name = "layer_norm_eps",
       .value = RealValue{&c_.layer_norm_eps, above(0)},
       .doc = "Added to the variance in LayerNorm.",
       .aliases = {"norm_eps"},
       .hf = HfKey{.left_out = 1e-12}},
      {.name = "initializer_range",
       .value = RealValue{&c_.initializer_range, at_least(0)},
       .doc = "Standard deviation of the initial weights.",
       .aliases = {"init_method_std"},
       .role = KeyRole::kInitialSpread,
       .hf = HfKey{.left_out = 0.02}},
      {.name = "hidden_dropout_prob",
       .value = RealValue{&c_.hidden_dropout, kRate},
       .doc = "Part of the embeddings, and of what each layer adds, that is dropped in training.",
       .aliases = {"hidden_dropout", "dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.0}},
      {.name = "attention_probs_dropout_prob",
       .value = RealValue{&c_.attention_dropout, kRate},
       .doc = "Part of attention's probabilities that is dropped in training.",
       .aliases = {"attention_dropout", "attn_dropout"},
       .role = KeyRole::kDropoutRate,
       .hf = HfKey{.left_out = 0.0}},
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

void VitModel::read_hf_rest(const HfConfig& hf) {
  hf.require("problem_type", "single_label_classification");  // the loss is cross-entropy
  c_.num_labels = labels_of(hf);
}

void VitModel::write_hf_rest(int64_t, nlohmann::json& json) const {
  nlohmann::json names = nlohmann::json::object(), numbers = nlohmann::json::object();
  for (int64_t i = 0; i < c_.num_labels; ++i) {
    const std::string name = fmt::format("LABEL_{}", i);
    names[std::to_string(i)] = name;
    numbers[name] = i;
  }
  json["id2label"] = names;
  json["label2id"] = numbers;
}

}  // namespace

std::unique_ptr<Model> make_vit_model() {
  return std::make_unique<VitModel>();
}

}  // namespace tessera

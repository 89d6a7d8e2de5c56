#include "config/hf_config.h"

#include <fmt/ranges.h>

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/json_text.h"

namespace tessera {
namespace {

class HfReader {
 public:
  HfReader(const nlohmann::json& json, const std::string& source) : json_(json), source_(source) {}

  LlamaConfig read() const {
    check_network();
    LlamaConfig model;
    model.hidden_size = size("hidden_size");
    model.intermediate_size = size("intermediate_size");
    model.num_hidden_layers = size("num_hidden_layers");
    model.num_attention_heads = size("num_attention_heads");
    model.num_key_value_heads =
        has("num_key_value_heads") ? size("num_key_value_heads") : model.num_attention_heads;
    model.vocab_size = size("vocab_size");
    model.rope_theta = rope_theta();
    // LlamaConfig's own defaults, not ours.
    model.rms_norm_eps = has("rms_norm_eps") ? number(json_, "rms_norm_eps") : 1.0e-6;
    model.initializer_range = has("initializer_range") ? number(json_, "initializer_range") : 0.02;
    model.tie_word_embeddings = flag("tie_word_embeddings");
    model.attention_dropout = attention_dropout();
    check_head_dim(model);
    return model;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const nlohmann::json& value,
                           const std::string& supported) const {
    fail_user("config", "{}: {}: {}; {}", source_, key, value.dump(), supported);
  }

  // Present and not null: transformers writes null for "as by default".
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  int64_t size(const char* key) const {
    if (!has(key)) fail_user("config", "{}: {} is missing; it has no default here", source_, key);
    const nlohmann::json& value = json_[key];
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    if (!value.is_number_integer() || value < 1 || value > kMax) {
      refuse(key, value, fmt::format("must be an integer from 1 to {}", kMax));
    }
    return value.get<int64_t>();
  }

  double number(const nlohmann::json& from, const char* key) const {
    if (!from[key].is_number()) refuse(key, from[key], "must be a number");
    return from[key].get<double>();
  }

  bool flag(const char* key) const {
    if (!has(key)) return false;
    if (!json_[key].is_boolean()) refuse(key, json_[key], "must be true or false");
    return json_[key].get<bool>();
  }

  double attention_dropout() const {
    if (!has("attention_dropout")) return 0.0;
    const double p = number(json_, "attention_dropout");
    if (!(p >= 0 && p < 1))
      refuse("attention_dropout", json_["attention_dropout"], "must be at least 0 and below 1");
    return p;
  }

  void check_network() const {
    if (!has("model_type") || json_["model_type"] != "llama") {
      refuse("model_type", json_.value("model_type", nlohmann::json()),
             "only \"llama\" is supported");
    }
    if (has("hidden_act") && json_["hidden_act"] != "silu") {
      refuse("hidden_act", json_["hidden_act"], "only \"silu\" is supported");
    }
    for (const char* key : {"attention_bias", "mlp_bias"}) {
      if (flag(key)) refuse(key, json_[key], "linear layers with a bias are not supported");
    }
    if (has("partial_rotary_factor") && json_["partial_rotary_factor"] != 1) {
      refuse("partial_rotary_factor", json_["partial_rotary_factor"], "only 1 is supported");
    }
    if (has("quantization_config")) {
      refuse("quantization_config", json_["quantization_config"],
             "quantized models are not supported");
    }
  }

  // transformers 4 writes rope_theta and rope_scaling, transformers 5 one map rope_parameters.
  double rope_theta() const {
    double theta = has("rope_theta") ? number(json_, "rope_theta") : 10000.0;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (!has(key)) continue;
      const nlohmann::json& rope = json_[key];
      const char* type_key = rope.contains("rope_type") ? "rope_type" : "type";
      if (!rope.is_object() || rope.value(type_key, nlohmann::json("default")) != "default") {
        refuse(key, rope, "scaled rotary embeddings are not supported, only rope_type \"default\"");
      }
      if (rope.contains("rope_theta")) theta = number(rope, "rope_theta");
    }
    return theta;
  }

  void check_head_dim(const LlamaConfig& model) const {
    if (!has("head_dim")) return;
    const int64_t head_dim = size("head_dim");
    if (head_dim * model.num_attention_heads != model.hidden_size) {
      refuse("head_dim", json_["head_dim"],
             fmt::format("must be hidden_size / num_attention_heads = {} / {}", model.hidden_size,
                         model.num_attention_heads));
    }
  }

  const nlohmann::json& json_;
  const std::string& source_;
};

}  // namespace

LlamaConfig llama_config_from_hf(const nlohmann::json& config, const std::string& source) {
  if (!config.is_object()) fail_user("config", "{}: must be a JSON object", source);
  return HfReader(config, source).read();
}

LlamaConfig read_hf_config(const std::filesystem::path& file) {
  constexpr int64_t kMaxBytes = 1 << 20;
  const std::string source = file.string();
  return llama_config_from_hf(parse_json(read_small_file(file, kMaxBytes), source), source);
}

}  // namespace tessera

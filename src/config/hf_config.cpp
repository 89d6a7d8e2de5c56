#include "config/hf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace tessera {
namespace {

class HfReader {
 public:
  HfReader(nlohmann::json json, std::string file)
      : json_(std::move(json)), file_(std::move(file)) {}

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
    check_head_dim(model);
    return model;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const nlohmann::json& value,
                           const std::string& supported) const {
    fail_user("config", "{}: {}: {}; {}", file_, key, value.dump(), supported);
  }

  // Present and not null: transformers writes null for "as by default".
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  int64_t size(const char* key) const {
    if (!has(key)) fail_user("config", "{}: {} is missing; it has no default here", file_, key);
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
    if (has("attention_dropout") && json_["attention_dropout"] != 0) {
      refuse("attention_dropout", json_["attention_dropout"], "only 0 is supported");
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

  nlohmann::json json_;
  std::string file_;
};

}  // namespace

LlamaConfig read_hf_config(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    fail_user("config",
              "{}: cannot be read; model.config is the path of a Hugging Face "
              "config.json",
              file.string());
  }
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text.str());
  } catch (const nlohmann::json::parse_error& error) {
    const std::string content = text.str();
    const auto end =
        content.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, content.size()));
    fail_user("config", "{}:{}: not valid JSON: {}", file.string(),
              1 + std::count(content.begin(), end, '\n'), error.what());
  }
  if (!json.is_object()) fail_user("config", "{}: must be a JSON object", file.string());
  return HfReader(std::move(json), file.string()).read();
}

}  // namespace tessera

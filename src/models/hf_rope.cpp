#include "models/hf_rope.h"

#include "base/error.h"

namespace tessera {
namespace {

using nlohmann::json;

void read_scaling(const HfConfig& hf, const char* key, double& theta, RopeScaling& scaling) {
  const json& rope = hf.json()[key];
  if (!rope.is_object()) hf.refuse(key, rope, "must be an object");
  const HfConfig map(rope, hf.source() + ": " + key);
  const std::string type = map.text_or(map.has("rope_type") ? "rope_type" : "type", "default");
  theta = map.number_or("rope_theta", theta);
  map.require("partial_rotary_factor", 1);
  if (type == "default") return;
  if (type != "linear" && type != "llama3")
    hf.refuse(key, rope, "rope types default, linear and llama3 are supported");
  const auto number = [&](const char* name) {
    if (!map.has(name)) hf.refuse(key, rope, std::string("must have ") + name);
    return map.number_or(name, 0);
  };
  scaling.type = type == "linear" ? RopeScalingType::kLinear : RopeScalingType::kLlama3;
  scaling.factor = number("factor");
  if (scaling.type == RopeScalingType::kLlama3) {
    scaling.low_freq_factor = number("low_freq_factor");
    scaling.high_freq_factor = number("high_freq_factor");
    scaling.original_max_position_embeddings = map.size("original_max_position_embeddings");
  }
}

}  // namespace

void read_hf_rope(const HfConfig& hf, double& theta, RopeScaling& scaling) {
  theta = hf.number_or("rope_theta", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (hf.has(key)) read_scaling(hf, key, theta, scaling);
}

void write_hf_rope(double theta, const RopeScaling& scaling, json& out) {
  json map = {{"rope_type", "default"}};
  if (scaling.type != RopeScalingType::kNone) {
    map["rope_type"] = scaling.type == RopeScalingType::kLinear ? "linear" : "llama3";
    map["factor"] = scaling.factor;
  }
  if (scaling.type == RopeScalingType::kLlama3) {
    map["low_freq_factor"] = scaling.low_freq_factor;
    map["high_freq_factor"] = scaling.high_freq_factor;
    map["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  }
  out["rope_theta"] = theta;
  out["rope_scaling"] = scaling.type == RopeScalingType::kNone ? json() : map;
  map["rope_theta"] = theta;
  out["rope_parameters"] = map;
}

void check_rope_scaling(const RopeScaling& s) {
  const RopeScaling defaults;
  const bool llama3 = s.type == RopeScalingType::kLlama3;
  if (s.type == RopeScalingType::kNone && s.factor != defaults.factor)
    fail_user("config",
              "model.rope_factor: {}; model.rope_scaling is none; set it to linear or llama3, or "
              "remove the factor",
              s.factor);
  if (!llama3 && (s.low_freq_factor != defaults.low_freq_factor ||
                  s.high_freq_factor != defaults.high_freq_factor ||
                  s.original_max_position_embeddings != defaults.original_max_position_embeddings))
    fail_user("config",
              "model.rope_low_freq_factor, rope_high_freq_factor, "
              "rope_original_max_position_embeddings: {}, {}, {}; they belong to "
              "model.rope_scaling: llama3; remove them",
              s.low_freq_factor, s.high_freq_factor, s.original_max_position_embeddings);
  if (llama3 && s.high_freq_factor <= s.low_freq_factor)
    fail_user("config",
              "model.rope_high_freq_factor: {}; must be above model.rope_low_freq_factor {}",
              s.high_freq_factor, s.low_freq_factor);
}

}  // namespace tessera

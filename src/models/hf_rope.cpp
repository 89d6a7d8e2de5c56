#include "models/hf_rope.h"

#include "base/error.h"

namespace tessera {
namespace {

using nlohmann::json;

struct Rope {
  double theta;
  RopeScaling scaling;

  bool operator==(const Rope&) const = default;
};

Rope read_map(const HfConfig& hf, const char* key) {
  Rope result{hf.number_or("rope_theta", 10000.0), {}};
  const json& rope = hf.json()[key];
  if (!rope.is_object()) hf.refuse(key, rope, "must be an object");
  const HfConfig map(rope, hf.source() + ": " + key);
  const std::string type = map.text_or(map.has("rope_type") ? "rope_type" : "type", "default");
  result.theta = map.number_or("rope_theta", result.theta);
  map.require("partial_rotary_factor", 1);
  if (type == "default") return result;
  if (type != "linear" && type != "llama3")
    hf.refuse(key, rope, "rope types default, linear and llama3 are supported");
  const auto number = [&](const char* name) {
    if (!map.has(name)) hf.refuse(key, rope, std::string("must have ") + name);
    return map.number_or(name, 0);
  };
  RopeScaling& scaling = result.scaling;
  scaling.type = type == "linear" ? RopeScalingType::kLinear : RopeScalingType::kLlama3;
  scaling.factor = number("factor");
  if (scaling.type == RopeScalingType::kLlama3) {
    scaling.low_freq_factor = number("low_freq_factor");
    scaling.high_freq_factor = number("high_freq_factor");
    scaling.original_max_position_embeddings = map.size("original_max_position_embeddings");
    hf.require("original_max_position_embeddings", scaling.original_max_position_embeddings);
  }
  if (scaling.factor == 1.0) scaling = {};  // either kind by 1 is none
  return result;
}

}  // namespace

void read_hf_rope(const HfConfig& hf, double& theta, RopeScaling& scaling) {
  // The older and the newer name; which of two that differ would win depends on the release.
  const bool older = hf.has("rope_scaling"), newer = hf.has("rope_parameters");
  Rope rope{hf.number_or("rope_theta", 10000.0), {}};
  if (newer) rope = read_map(hf, "rope_parameters");
  if (older) {
    const Rope other = read_map(hf, "rope_scaling");
    if (newer && other != rope)
      hf.refuse("rope_scaling", hf.json()["rope_scaling"],
                "must say the same as rope_parameters, which is there too, or be removed");
    rope = other;
  }
  theta = rope.theta;
  scaling = rope.scaling;
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
  if (s.type != RopeScalingType::kNone && s.factor <= 1.0)
    fail_user(
        "config",
        "model.rope_factor: {}; must be above 1 with model.rope_scaling, which stretches by it; "
        "set it, or rope_scaling: none",
        s.factor);
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

#include "models/hf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr double kDefaultTheta = 10000.0;

struct Rope {
  double theta;
  RopeScaling scaling;

  bool operator==(const Rope&) const = default;
};

// The type that a map of rotary settings names; transformers 4 called the key `type`.
std::string type_of(const HfConfig& map) {
  if (!map.has("rope_type")) return map.has("type") ? map.text_or("type", "") : "default";
  const std::string type = map.text_or("rope_type", "");
  if (map.has("type") && map.json()["type"] != type)
    map.refuse("type", map.json()["type"],
               fmt::format("must say the same as rope_type {}, which is there too", type));
  return type;
}

// Numbers that say nothing for a type, which transformers passes over, are of another type's.
void refuse_other_keys(const HfConfig& map, const std::string& type,
                       const std::vector<std::string>& keys) {
  for (const auto& [key, value] : map.json().items()) {
    if (value.is_null() || std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    if (value.is_object())
      map.refuse(key, value, "rotary positions that differ by kind of layer are not supported");
    if (key == "factor" && value == 1) continue;  // by 1 it is none
    map.refuse(
        key, value,
        map.has("rope_type") || map.has("type")
            ? fmt::format("does not belong to rope_type {}; correct the type or remove it", type)
            : "has no rope_type beside it, which says what it is for; add one or remove it");
  }
}

// The length of llama3's first training. Like transformers, it may stand outside of the map, and is
// the longest context where nothing says it.
int64_t original_length(const HfConfig& hf, const HfConfig& map) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (map.has(kOriginal)) {
    const int64_t length = map.size(kOriginal);
    hf.require(kOriginal, length);
    return length;
  }
  if (hf.has(kOriginal)) return hf.size(kOriginal);
  if (hf.has("max_position_embeddings")) return hf.size("max_position_embeddings");
  hf.refuse("rope_type", "llama3", fmt::format("must have {}", kOriginal));
}

double theta_of(const HfConfig& hf, double otherwise) {
  const double theta = hf.number_or("rope_theta", otherwise);
  if (!(theta > 0)) hf.refuse("rope_theta", theta, "must be above 0");
  return theta;
}

Rope read_map(const HfConfig& hf, const char* key) {
  Rope result{theta_of(hf, kDefaultTheta), {}};
  const json& rope = hf.json()[key];
  if (!rope.is_object()) hf.refuse(key, rope, "must be an object");
  const HfConfig map(rope, hf.source() + ": " + key);
  const std::string type = type_of(map);
  if (hf.has("rope_theta") && theta_of(map, result.theta) != result.theta)
    hf.refuse("rope_theta", hf.json()["rope_theta"],
              fmt::format("must say the same as {}.rope_theta {}, which is there too", key,
                          rope["rope_theta"].dump()));
  result.theta = theta_of(map, result.theta);
  map.require("partial_rotary_factor", 1);
  if (type != "default" && type != "linear" && type != "llama3")
    hf.refuse(key, rope, "rope types default, linear and llama3 are supported");
  std::vector<std::string> keys = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  if (type != "default") keys.emplace_back("factor");
  if (type == "llama3")
    keys.insert(keys.end(),
                {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  refuse_other_keys(map, type, keys);
  if (type == "default") return result;
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
    scaling.original_max_position_embeddings = original_length(hf, map);
  }
  if (scaling.factor == 1.0) scaling = {};  // either kind by 1 is none
  return result;
}

// Present and with something in it: transformers takes an empty map for none.
bool has_map(const HfConfig& hf, const char* key) {
  return hf.has(key) && hf.json()[key] != json::object();
}

}  // namespace

void read_hf_rope(const HfConfig& hf, double& theta, RopeScaling& scaling) {
  // The older and the newer name; which of two that differ would win depends on the release.
  const bool older = has_map(hf, "rope_scaling"), newer = has_map(hf, "rope_parameters");
  Rope rope{theta_of(hf, kDefaultTheta), {}};
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

void check_rope_scaling(const RopeScaling& s, RuleReport& report) {
  const RopeScaling defaults;
  const bool llama3 = s.type == RopeScalingType::kLlama3;
  if (s.type != RopeScalingType::kNone && s.factor <= 1.0)
    report.broken(
        {"model.rope_factor", "model.rope_scaling"},
        "model.rope_factor: {}; must be above 1 with model.rope_scaling, which stretches by it; "
        "set it, or rope_scaling: none",
        s.factor);
  if (s.type == RopeScalingType::kNone && s.factor != defaults.factor)
    report.broken(
        {"model.rope_factor", "model.rope_scaling"},
        "model.rope_factor: {}; model.rope_scaling is none; set it to linear or llama3, or "
        "remove the factor",
        s.factor);
  if (!llama3 && (s.low_freq_factor != defaults.low_freq_factor ||
                  s.high_freq_factor != defaults.high_freq_factor ||
                  s.original_max_position_embeddings != defaults.original_max_position_embeddings))
    report.broken({"model.rope_low_freq_factor", "model.rope_high_freq_factor",
                   "model.rope_original_max_position_embeddings", "model.rope_scaling"},
                  "model.rope_low_freq_factor, rope_high_freq_factor, "
                  "rope_original_max_position_embeddings: {}, {}, {}; they belong to "
                  "model.rope_scaling: llama3; remove them",
                  s.low_freq_factor, s.high_freq_factor, s.original_max_position_embeddings);
  if (llama3 && s.high_freq_factor <= s.low_freq_factor)
    report.broken({"model.rope_high_freq_factor", "model.rope_low_freq_factor"},
                  "model.rope_high_freq_factor: {}; must be above model.rope_low_freq_factor {}",
                  s.high_freq_factor, s.low_freq_factor);
}

}  // namespace tessera

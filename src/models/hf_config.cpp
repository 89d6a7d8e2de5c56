#include "models/hf_config.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"

namespace tessera {

HfConfig::HfConfig(const nlohmann::json& json, std::string source)
    : json_(json), source_(std::move(source)) {
  if (!json_.is_object()) fail_user("config", "{}: must be a JSON object", source_);
}

void HfConfig::refuse(const std::string& key, const nlohmann::json& value,
                      const std::string& supported) const {
  fail_user("config", "{}: {}: {}; {}", source_, key, value.dump(), supported);
}

int64_t HfConfig::size(const char* key) const {
  if (!has(key)) fail_user("config", "{}: {} is missing; it has no default here", source_, key);
  const nlohmann::json& value = json_[key];
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (!value.is_number_integer() || value < 1 || value > kMax)
    refuse(key, value, fmt::format("must be an integer from 1 to {}", kMax));
  return value.get<int64_t>();
}

int64_t HfConfig::size_or(const char* key, int64_t otherwise) const {
  if (!json_.contains(key)) return otherwise;
  if (!has(key)) refuse(key, nullptr, "must be an integer, or be left out");
  return size(key);
}

double HfConfig::number_or(const char* key, double otherwise) const {
  if (!json_.contains(key)) return otherwise;
  if (!json_[key].is_number()) refuse(key, json_[key], "must be a number, or be left out");
  return json_[key].get<double>();
}

double HfConfig::rate_or(const char* key, double otherwise) const {
  const double p = number_or(key, otherwise);
  if (!(p >= 0 && p < 1)) refuse(key, json_[key], "must be at least 0 and below 1");
  return p;
}

bool HfConfig::flag_or(const char* key, bool otherwise) const {
  if (!json_.contains(key)) return otherwise;
  if (!json_[key].is_boolean()) refuse(key, json_[key], "must be true or false, or be left out");
  return json_[key].get<bool>();
}

std::string HfConfig::text_or(const char* key, const std::string& otherwise) const {
  if (!json_.contains(key)) return otherwise;
  if (!json_[key].is_string()) refuse(key, json_[key], "must be a text, or be left out");
  return json_[key].get<std::string>();
}

void HfConfig::require(const char* key, const nlohmann::json& value) const {
  if (has(key) && json_[key] != value)
    refuse(key, json_[key], fmt::format("only {} is supported", value.dump()));
}

void HfConfig::require_plain_weights() const {
  if (has("quantization_config"))
    refuse("quantization_config", json_["quantization_config"],
           "quantized models are not supported");
}

}  // namespace tessera

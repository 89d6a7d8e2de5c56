#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera {

// A Hugging Face config.json, read with care: every getter is a UserError "[config] SOURCE: key:
// value; the rule" for a value of the wrong kind.
class HfConfig {
 public:
  // `json` must outlive it; UserError if it is no object.
  HfConfig(const nlohmann::json& json, std::string source);

  const nlohmann::json& json() const { return json_; }
  const std::string& source() const { return source_; }

  // Present and not null. What null means is the key's own: often none, seldom the default that
  // holds where the key is left out. The getters below refuse it.
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  int64_t size(const char* key) const;  // an integer of at least 1; required
  // `otherwise`: what transformers takes where the key is left out.
  int64_t size_or(const char* key, int64_t otherwise) const;
  double number_or(const char* key, double otherwise) const;
  double rate_or(const char* key, double otherwise) const;  // in [0, 1)
  bool flag_or(const char* key, bool otherwise) const;
  std::string text_or(const char* key, const std::string& otherwise) const;

  // UserError unless the key is absent, null or has this value: what the models of this program
  // compute.
  void require(const char* key, const nlohmann::json& value) const;
  // UserError if weights are quantized.
  void require_plain_weights() const;

  [[noreturn]] void refuse(const std::string& key, const nlohmann::json& value,
                           const std::string& supported) const;

 private:
  const nlohmann::json& json_;
  std::string source_;
};

}  // namespace tessera

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Named in checkpoint.allow_change: the training data may hold others than they did. Their paths
// may change in any case.
inline constexpr const char* kDataContents = "data.train";

// Why no change of a key that decides the mathematics has a meaning for a run that goes on; empty:
// a change has one, and checkpoint.allow_change may name the key. `key`: with its section, of a
// configuration of that model.
std::string why_fixed(const std::string& key, const Model& model);

// Reports each name in checkpoint.allow_change that is no key, or of a key whose change has no
// meaning (with the reason), or needs no permission.
void check_allow_change(const Config& config, RuleReport& report);

// A key that two configurations give other values; null: the key is absent.
struct ConfigChange {
  std::string key;
  nlohmann::json before, after;
  std::string text() const;  // "key: old -> new"
};

// What differs between a saved configuration (to_json) and this one; in texts, a ConfigChange::text
// per key.
struct ConfigDifference {
  // To be refused: model, seed, seq_len, global batch, optimizer, precision, ...
  std::vector<std::string> mathematics;
  std::vector<std::string> on_request;  // the keys of these that checkpoint.allow_change may name
  std::vector<ConfigChange> allowed;    // which it does name
  std::vector<std::string> other;       // free, printed: mesh, micro-batch, paths, logging, steps
};
ConfigDifference compare_for_resume(const nlohmann::json& saved, const Config& now);

}  // namespace tessera

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// With this name in checkpoint.allow_change a run may resume with training data of other contents.
// Paths to the same contents may always change.
inline constexpr const char* kDataContents = "data.train";

// For a key that decides the mathematics: the reason why no resumed run may change it. Empty if it
// may, once checkpoint.allow_change names the key. `key`: with its section, of a
// configuration of that model.
std::string why_fixed(const std::string& key, const Model& model);

// Reports each name in checkpoint.allow_change that is no key, that is a key which no resumed run
// may change (with the reason of why_fixed()), or that is a key which may change without
// permission.
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
  std::vector<std::string> on_request;  // those keys of `mathematics` that allow_change may name
  std::vector<ConfigChange> allowed;    // changes that allow_change names: not in `mathematics`
  std::vector<std::string> other;       // free, printed: mesh, micro-batch, paths, logging, steps
};
ConfigDifference compare_for_resume(const nlohmann::json& saved, const Config& now);

}  // namespace tessera

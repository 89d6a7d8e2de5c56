#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/rule_report.h"
#include "config/config.h"
#include "config/key_places.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// A configuration and where its keys were given.
struct LoadedConfig {
  Config config;
  KeyPlaces places;
};

// Reads a YAML file strictly (docs/configuration.md) and applies `overrides` ("a.b=value", the
// value read as YAML by the same rules). What is wrong goes to `mistakes`, and the keys at fault
// keep their defaults; UserError where nothing more can be read.
LoadedConfig read_config(const std::filesystem::path& file,
                         const std::vector<std::string>& overrides, Mistakes& mistakes);

// The same; UserError "[config] FILE:LINE:COLUMN: ..." with all mistakes, if there are any.
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// All rules that need no number of ranks, by messages that name the values and the ones that would
// work.
void check_config(const Config& config, RuleReport& report);
// The same; UserError with all that are broken.
void check_config(const Config& config);

// Of these, the rules of a model's own keys. UserError.
void check_model(AnyModel model);

// The mesh for `world` ranks, dp_shard: auto resolved; nullopt when the product does not fit.
std::optional<MeshShape> resolve_mesh(const Config& config, int world, RuleReport& report);
// The same; UserError.
MeshShape resolve_mesh(const Config& config, int world);

// The resolved configuration: every key with its value, readable by load_config() again.
std::string to_yaml(const Config& config);
nlohmann::json to_json(const Config& config);

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

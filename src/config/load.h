#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// Reads a YAML file strictly (docs/configuration.md) and applies `overrides` ("a.b=value", the
// value read as YAML by the same rules). UserError "[config] FILE:LINE:COLUMN: ..." for anything
// wrong.
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// All rules that need no number of ranks. UserError naming the values and the ones that would work.
void check_config(const Config& config);

// Of these, the rules of a model's own keys.
void check_model(AnyModel model);

// The mesh for `world` ranks, dp_shard: auto resolved; UserError when the product does not fit.
MeshShape resolve_mesh(const Config& config, int world);

// The resolved configuration: every key with its value, readable by load_config() again.
std::string to_yaml(const Config& config);
nlohmann::json to_json(const Config& config);

// What differs between a saved configuration (to_json) and this one, one line per key: "key: old ->
// new".
struct ConfigDifference {
  std::vector<std::string>
      mathematics;  // refuse: model, seed, seq_len, global batch, optimizer, precision
  std::vector<std::string> other;  // allowed, printed: mesh, micro-batch, paths, logging, steps
};
ConfigDifference compare_for_resume(const nlohmann::json& saved, const Config& now);

}  // namespace tessera

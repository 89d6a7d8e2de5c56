#pragma once

#include <optional>

#include "base/fields/rule_report.h"
#include "config/config.h"
#include "parallel/mesh_shape.h"

namespace tessera {

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

}  // namespace tessera

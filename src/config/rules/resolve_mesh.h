#pragma once

#include <optional>

#include "base/fields/rule_report.h"
#include "config/config.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// The mesh for `world` ranks, dp_shard: auto resolved; nullopt when the product does not fit.
std::optional<MeshShape> resolve_mesh(const Config& config, int world, RuleReport& report);
// The same; UserError.
MeshShape resolve_mesh(const Config& config, int world);

}  // namespace tessera

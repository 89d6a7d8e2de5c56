#pragma once

#include <nlohmann/json.hpp>

#include "base/fields/rule_report.h"
#include "models/hf_config.h"
#include "models/layers/rope_scaling.h"

namespace tessera {

// Rotary positions in a config.json: transformers 4 writes rope_theta and rope_scaling,
// transformers 5 one map rope_parameters. UserError for a scaling that is not computed here, for
// two places that contradict each other, and for numbers that do not belong to the type.
void read_hf_rope(const HfConfig& hf, double& theta, RopeScaling& scaling);

// Both forms, so that every version of transformers finds its own.
void write_hf_rope(double theta, const RopeScaling& scaling, nlohmann::json& json);

// Reports numbers that do not go together.
void check_rope_scaling(const RopeScaling& scaling, RuleReport& report);

}  // namespace tessera

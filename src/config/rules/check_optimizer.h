#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Keys that the chosen optimizer would not look at must be as they are without being given.
void check_optimizer(const OptimizerConfig& optimizer, ParamsDtype params, RuleReport& report);

}  // namespace tessera

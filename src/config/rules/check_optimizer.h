#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Checks the rules between keys of `optimizer`. A key that the chosen optimizer does not read must
// have its default, since nothing that a user sets may be without effect.
void check_optimizer(const OptimizerConfig& optimizer, ParamsDtype params, RuleReport& report);

}  // namespace tessera

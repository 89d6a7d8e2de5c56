#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Checks all rules that do not depend on the number of ranks. Messages name the values that break a
// rule and values that would work.
void check_config(const Config& config, RuleReport& report);
// The same; UserError with all that are broken.
void check_config(const Config& config);

// Checks only the rules of a model's own keys; UserError with all that are broken.
void check_model(AnyModel model);

}  // namespace tessera

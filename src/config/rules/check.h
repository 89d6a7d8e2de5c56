#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// All rules that need no number of ranks, by messages that name the values and the ones that would
// work.
void check_config(const Config& config, RuleReport& report);
// The same; UserError with all that are broken.
void check_config(const Config& config);

// Of these, the rules of a model's own keys. UserError.
void check_model(AnyModel model);

}  // namespace tessera

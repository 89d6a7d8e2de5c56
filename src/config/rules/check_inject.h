#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Reports a debug.inject that could not happen: a deed at a moment that it does not fit, a step
// that never comes, or is not saved or validated.
void check_inject(const Config& config, RuleReport& report);

// The same for what depends on the number of ranks.
void check_inject(const Config& config, int ranks, RuleReport& report);
// UserError if that reports anything.
void check_inject(const Config& config, int ranks);

}  // namespace tessera

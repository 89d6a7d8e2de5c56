#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Checks whether the model and the samples can be split as `parallel` says. The caller has found
// each of their values sound by itself (check_fields()).
void check_parallel(const Config& config, RuleReport& report);

// Settings that the stage of ZeRO has no use for.
void check_zero(const ParallelSection& parallel, RuleReport& report);

}  // namespace tessera

#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Whether the model and the samples can be split as `parallel` says. Their own values are sound.
void check_parallel(const Config& config, RuleReport& report);

// Settings that the stage of ZeRO has no use for.
void check_zero(const ParallelSection& parallel, RuleReport& report);

}  // namespace tessera

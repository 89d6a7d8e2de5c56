#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Keys that `device` cannot honour, whatever the machine.
void check_device_rules(const Config& config, RuleReport& report);

// UserError if this program, or this process here, has no such device: for what is about to
// compute. A configuration may well be checked where there is none.
void check_device_here(const Config& config);

}  // namespace tessera

#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// Keys that `device` cannot honour, whatever the machine.
void check_device_rules(const Config& config, RuleReport& report);

// UserError if this program, or this process, has no such device. Only a command that is about to
// compute calls this: a configuration may also be checked on a machine without the device.
void check_device_here(const Config& config);

}  // namespace tessera

#pragma once

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// The rules of `precision`, with those keys of other sections that depend on it.
void check_precision(const Config& config, RuleReport& report);

}  // namespace tessera

#pragma once

#include <optional>

#include "base/fields/rule_report.h"
#include "config/config.h"

namespace tessera {

// The rules of `data` and `eval` with each other and with what the model reads (nullopt: that is
// not known).
void check_data(const Config& config, const std::optional<ModelInput>& input, RuleReport& report);

}  // namespace tessera

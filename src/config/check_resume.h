#pragma once

#include <string>

#include "base/rule_report.h"
#include "config/config.h"

namespace tessera {

// Named in checkpoint.allow_change: the training data may hold others than they did. Their paths
// may change in any case.
inline constexpr const char* kDataContents = "data.train";

// Why no change of a key that decides the mathematics has a meaning for a run that goes on; empty:
// a change has one, and checkpoint.allow_change may name the key.
std::string why_fixed(const std::string& key);

// Reports each name in checkpoint.allow_change that is no key, or of a key whose change has no
// meaning (with the reason), or needs no permission.
void check_allow_change(const Config& config, RuleReport& report);

}  // namespace tessera

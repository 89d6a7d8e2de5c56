#pragma once

#include <vector>

#include "optim/optimizer_config.h"
#include "parallel/parameter.h"

namespace tessera {

// Writes what optimizer.groups say into the specs of the parameters: the first group with a pattern
// that fits a parameter's name decides. Must run before buckets are made, since frozen parameters
// get buckets of their own. UserError for a pattern that fits no parameter, and if no parameter is
// left to train.
void resolve_groups(const std::vector<ParameterGroup>& groups,
                    const std::vector<ParameterTable*>& tables);

}  // namespace tessera

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/parameter.h"

namespace tessera {

// Marks the parameters whose names match one of the patterns (base/text/name_pattern.h) as kept in
// fp32. Before buckets are made, since they get buckets of their own. UserError for a pattern that
// matches none, and for a pack of which only some parts match; it calls the patterns `key`, after
// the place where the user has written them.
void resolve_keep_fp32(std::string_view key, const std::vector<std::string>& patterns,
                       const std::vector<ParameterTable*>& tables);

}  // namespace tessera

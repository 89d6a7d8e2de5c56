#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "cli/config_arguments.h"

namespace tessera {

struct ConfigCheckOptions {
  std::optional<int> ranks;  // how many would be started
  std::optional<int> ranks_per_node;
  std::optional<int64_t> device_memory;  // bytes that a rank can have; needs `ranks`
  bool data = true;                      // look at the files that are named
};

// Checks everything about a run that can be known on any machine before it is started. UserError
// with all that is wrong; if nothing is, writes that and what was found to `out`.
void check_configuration(const ConfigArguments& arguments, const ConfigCheckOptions& options,
                         std::ostream& out);

}  // namespace tessera

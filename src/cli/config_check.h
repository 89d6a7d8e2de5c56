#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "cli/config_arguments.h"

namespace tessera {

struct ConfigCheckOptions {
  std::optional<int> ranks;  // that would be started
  std::optional<int> ranks_per_node;
  std::optional<int64_t> device_memory;  // bytes that a rank can have; needs `ranks`
  bool data = true;                      // look at the files that are named
};

// Everything that can be known of a run before it is started, on any machine: UserError with all
// that is wrong. Says on `out` that nothing is, and what was found.
void check_configuration(const ConfigArguments& arguments, const ConfigCheckOptions& options,
                         std::ostream& out);

}  // namespace tessera

#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

// After how many seconds without progress a run of several ranks is ended; 0: never.
struct WatchdogSection {
  int64_t start = 120;
  int64_t first_step = 600;
  std::optional<int64_t> step;  // nullopt: auto
  int64_t validation = 3600;
  int64_t save = 3600;
};

}  // namespace tessera

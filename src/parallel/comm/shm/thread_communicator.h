#pragma once

#include <chrono>
#include <functional>

#include "parallel/comm/core/communicator.h"

namespace tessera {

struct ThreadWorldOptions {
  std::chrono::milliseconds timeout{60000};
  std::chrono::milliseconds file_timeout{3600000};
};

// Runs `body(world)` once per rank, each on a thread of its own, with a communicator over all of
// them. If a rank throws, the others are aborted and the first error is thrown again here.
void run_thread_ranks(int ranks, const std::function<void(Communicator& world)>& body,
                      ThreadWorldOptions options = {});

}  // namespace tessera

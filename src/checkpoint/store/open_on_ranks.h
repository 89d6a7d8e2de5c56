#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include "checkpoint/store/stored_checkpoint.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// StoredCheckpoint::open() for a whole job: rank 0 alone reads and checks, and the others get what
// it has read. Errors of rank 0 are thrown on all ranks. Collective.
std::shared_ptr<const StoredCheckpoint> open_on_all_ranks(Communicator& world,
                                                          const std::filesystem::path& step_dir,
                                                          std::chrono::milliseconds late = {});

}  // namespace tessera

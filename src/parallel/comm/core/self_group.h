#pragma once

#include <memory>
#include <string>

#include "parallel/comm/core/abort_state.h"
#include "parallel/comm/core/self_communicator.h"

namespace tessera {

// A group of one inside a larger world: fails when that world is aborted.
std::unique_ptr<Communicator> make_self_communicator(std::string name,
                                                     std::shared_ptr<AbortState> abort);

}  // namespace tessera

#pragma once

#include <memory>
#include <string>

#include "parallel/comm/core/group_context.h"
#include "parallel/comm/core/self_communicator.h"

namespace tessera {

// A group of one inside a larger world: fails when that world is aborted. `ranks`: its one rank.
std::unique_ptr<Communicator> make_self_communicator(std::string name, WorldState world,
                                                     std::shared_ptr<const RankNames> ranks);

}  // namespace tessera

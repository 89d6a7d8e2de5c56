#pragma once

#include "config/config.h"
#include "parallel/comm/communicator.h"

namespace tessera {

// UserError, the same on all ranks, if a rank has read another configuration than rank 0 (a stale
// copy on a node's own disk, say): such ranks would hang or train something that nobody asked for.
// Collective.
void check_same_config(const Config& config, Communicator& world);

}  // namespace tessera

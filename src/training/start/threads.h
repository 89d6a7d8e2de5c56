#pragma once

#include "parallel/comm/core/communicator.h"

namespace tessera {

// Has this process compute with `threads` threads, and makes them now. Error, on some rank, if
// there cannot be so many of all ranks of this machine at a time. Collective.
void start_threads(int threads, Communicator& world);

}  // namespace tessera

#pragma once

#include "parallel/comm/core/communicator.h"

namespace tessera {

// Makes this process compute with `threads` threads, and starts them now. First finds out whether
// the system allows the threads of all ranks at the same time: the ranks on which one cannot be
// made throw an Error. Collective.
void start_threads(int threads, Communicator& world);

}  // namespace tessera

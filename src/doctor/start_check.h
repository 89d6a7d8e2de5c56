#pragma once

#include <string>
#include <vector>

#include "parallel/comm/core/communicator.h"

namespace tessera::doctor {

// The quick form of the doctor at the start of a run of several ranks, once its groups of ranks
// have been made: what is cheap and certain. Returns a line for the user about each thing that
// makes a run slow or unsafe; none if all is well, and of one rank. Error if the ranks cannot train
// together. `threads`: that this rank computes with. Collective; all ranks return the same.
std::vector<std::string> check_start(Communicator& world, int threads);

}  // namespace tessera::doctor

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/core/communicator.h"

namespace tessera {

// Collective: every rank's message, in rank order, on every rank.
std::vector<std::string> gather_messages(Communicator& world, const std::string& message);

// Collective: rank 0's text, on every rank. Only rank 0 needs to have one.
std::string text_of_rank_0(Communicator& world, const std::string& own);

// Collective: whether every rank has the same text; 8 bytes of each travel.
bool same_on_all_ranks(Communicator& world, const std::string& text);

// Collective: runs `work` here and gives what it returned on every rank, in rank order. If it threw
// on any rank, every rank throws the first such error (with its rank, and as UserError,
// DamagedError or ReplacedError if it was one), marked as that of all ranks, so that nobody waits
// for a rank that gave up. DamagedError only if no rank failed otherwise: what is then done about
// the damage needs a sound machine. If it threw StopRequested on some ranks and failed on none, all
// throw that. Errors of the communicator itself pass through. `work` may take as long as file work
// does (parallel/comm/core/file_work.h).
std::vector<std::string> agree(Communicator& world, const std::function<std::string()>& work);

}  // namespace tessera

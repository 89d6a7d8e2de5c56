#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/state_source.h"
#include "parallel/fsdp/flat_bucket.h"
#include "parallel/mesh.h"

namespace tessera {

// Fills the named states (the master, then the moments) of all that this rank's optimizer updates.
//
// Ranks that need the same bytes and share a node read a part each and hand it to the others: at
// zero 0 all data-parallel ranks with the same place in tp, else the copies of dp_replicate. (What
// tensor parallelism holds alike, such as the weights of norms, each tp rank reads for itself.)
//
// `give_up` is asked before each state of a bucket: from the first true on this rank reads no more,
// and the states are of no use. Errors of `source` are thrown on all ranks alike, when all have
// read. Collective.
void load_states(
    const std::vector<FlatBucket*>& buckets, Mesh& mesh, const std::vector<std::string>& states,
    StateSource& source, const std::function<bool()>& give_up = [] { return false; });

}  // namespace tessera

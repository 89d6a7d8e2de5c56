#pragma once

#include <string>
#include <vector>

#include "checkpoint/format/pieces.h"
#include "checkpoint/store/reader.h"
#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// The parameter table as a checkpoint lists it: every tensor once, in model order.
std::vector<TensorInfo> tensor_infos(const std::vector<Stage*>& stages);

// This rank's pieces of the named states: `param` (the master weights), then the optimizer's
// moments in their order, which frozen parameters lack. They point into the buckets or, of states
// on a GPU, into copies in the host's memory, as large as those states.
//
// The ranks share the work: each has its own slice, and what replicas (of dp_replicate, or of tp
// for a parameter or part that tensor parallelism replicates) hold alike they divide further.
struct Snapshot {
  std::vector<Piece> pieces;
  std::vector<at::Tensor> copies;  // what the pieces point into
};
Snapshot take_snapshot(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                       const std::vector<std::string>& states);

// Fills the named states of all that this rank's optimizer updates.
void load_states(const std::vector<FlatBucket*>& buckets, const std::vector<std::string>& states,
                 CheckpointReader& reader);

}  // namespace tessera

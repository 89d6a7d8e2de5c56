#pragma once

#include <string>
#include <vector>

#include "checkpoint/format/pieces.h"
#include "checkpoint/format/state_source.h"
#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// The parameter table as a checkpoint lists it: every tensor once, in model order.
std::vector<TensorInfo> tensor_infos(const std::vector<Stage*>& stages);

// This rank's pieces of the named states: `param` (the master weights), then the optimizer's
// moments in their order; frozen parameters have no moments. The pieces point into the buckets;
// states on a GPU are first copied to the host, which takes as much host memory as they are large.
//
// The ranks share the work of writing: each has its own slice, and where several ranks hold the
// same elements (the copies of dp_replicate; of tp, what tensor parallelism replicates), each of
// them writes a part.
struct Snapshot {
  std::vector<Piece> pieces;
  std::vector<at::Tensor> copies;  // what the pieces point into
};
Snapshot take_snapshot(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                       const std::vector<std::string>& states);

// Fills the named states of all that this rank's optimizer updates.
void load_states(const std::vector<FlatBucket*>& buckets, const std::vector<std::string>& states,
                 StateSource& source);

}  // namespace tessera

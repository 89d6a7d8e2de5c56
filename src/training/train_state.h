#pragma once

#include <string>
#include <vector>

#include "checkpoint/pieces.h"
#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// The parameter table as a checkpoint lists it: every tensor once, in model order.
std::vector<TensorInfo> tensor_infos(const std::vector<Stage*>& stages);

// This rank's pieces of the named states, pointing into the buckets: `param` (the master weights),
// then the optimizer's moments in their order, which frozen parameters lack.
//
// To save, the ranks share the work: each has its own slice, and what replicas (of dp_replicate, or
// of tp for a parameter that tensor parallelism replicates) hold alike they divide further. To
// load, each fills all that its optimizer updates.
std::vector<Piece> pieces_to_save(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                                  const std::vector<std::string>& states);
std::vector<Piece> pieces_to_load(const std::vector<FlatBucket*>& buckets,
                                  const std::vector<std::string>& states);

}  // namespace tessera

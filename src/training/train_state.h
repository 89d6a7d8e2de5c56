#pragma once

#include <string>
#include <vector>

#include "checkpoint/pieces.h"
#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// The parameter table as a checkpoint lists it: every tensor once, in model order.
std::vector<TensorInfo> tensor_infos(const std::vector<Stage*>& stages);

// This rank's pieces of the named states (kStateParam, ...), pointing into the buckets' shards.
// Where tensor parallelism replicates a parameter, its ranks share the writing.
std::vector<Piece> pieces_of(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                             const std::vector<std::string>& states);

// param, exp_avg, exp_avg_sq.
std::vector<std::string> all_states();

}  // namespace tessera

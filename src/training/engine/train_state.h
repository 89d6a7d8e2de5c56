#pragma once

#include <string>
#include <vector>

#include "checkpoint/format/pieces.h"
#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// The parameter table as a checkpoint lists it: every tensor once, in model order.
std::vector<TensorInfo> tensor_infos(const std::vector<Stage*>& stages);

// This rank's pieces of the named states: `param` (the master weights), then the optimizer's
// moments in their order; frozen parameters have no moments. The pieces point into the buckets.
//
// The ranks share the work of writing: each has its own slice, and where several ranks hold the
// same elements (the copies of dp_replicate; of tp, what tensor parallelism replicates), each of
// them writes a part.
std::vector<Piece> state_pieces(const std::vector<FlatBucket*>& buckets, const Mesh& mesh,
                                const std::vector<std::string>& states);

// State number `index` of a bucket, undefined if it has none: the master, then the moments.
at::Tensor state_of(FlatBucket& bucket, size_t index);
// The piece that a segment is of the state `name`, whose elements `state` holds on the host.
Piece piece_of(const Segment& segment, const std::string& name, const at::Tensor& state);

}  // namespace tessera

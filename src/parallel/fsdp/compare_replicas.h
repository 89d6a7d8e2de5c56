#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "parallel/fsdp/flat_bucket.h"
#include "parallel/mesh.h"

namespace tessera {

// Names the parameter, the axis, two ranks of the world that differ, and the step.
class ReplicasDiffer : public Error {
 public:
  using Error::Error;
};

// Compares, by a hash (XXH3-64) of each parameter's weights and gradient, what ranks must hold bit
// for bit alike:
//
//   tp             parameters that tensor parallelism replicates, and parts with several copies
//   dp_replicate   every rank's slice
//   dp_shard       the full copies of weights at zero 0 to 2; at zero 0 gradients too
//
// Called when the gradients of step `step` are complete and nothing is updated yet. Collective: one
// small all-gather for each axis of more than one rank. ReplicasDiffer where they differ. (Marian
// compares its workers in the same way.)
void compare_replicas(const std::vector<FlatBucket*>& buckets, Mesh& mesh, int64_t step);

}  // namespace tessera

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "parallel/device/device.h"
#include "parallel/executor/slot_plan.h"
#include "parallel/fsdp/bucket_gradient.h"

namespace tessera {

// The memory in which an executor's reductions work, allocated once. A stage reduces its buckets at
// the same time, so each has buffers of its own: number i serves the i-th bucket of whichever stage
// is being reduced, and is as large as the largest of those.
//
// Staging and wire are free again one turn later, when the next stage starts its reductions. The
// shard of an offloaded gradient is needed for longer, so there are kShardSlotSets of those, taken
// in turn.
class ReduceMemory {
 public:
  // of_stage[s][i]: the gradient of the i-th bucket of stage s; null: the bucket is frozen.
  ReduceMemory(const Device& device,
               const std::vector<std::vector<const BucketGradient*>>& of_stage);

  // For the i-th bucket of the stage whose backward was turn number `turn`.
  ReduceBuffers buffers(size_t i, int turn) const;
  // Whether any gradient is kept in the host's memory.
  bool has_offloaded() const { return has_offloaded_; }
  int64_t bytes() const;

 private:
  bool has_offloaded_ = false;
  std::vector<at::Tensor> staging_;
  std::vector<at::Tensor> wire_;
  std::array<std::vector<at::Tensor>, kShardSlotSets> shard_slots_;
};

}  // namespace tessera

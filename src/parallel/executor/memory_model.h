#pragma once

#include <vector>

#include "parallel/executor/bucket_set.h"
#include "parallel/executor/executor_plan.h"
#include "parallel/memory_ledger.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// What the memory of a chain of stages depends on.
struct ChainSize {
  struct Bucket {
    int64_t numel;  // elements of this rank's tensor-parallel part, before sharding and padding
    at::ScalarType params;
    bool trainable;
    int uses;
  };
  std::vector<Bucket> buckets;
  std::vector<StageNeeds> stages;
};

ChainSize chain_size(const std::vector<Stage*>& stages, const BucketPlan& plan,
                     const ExecutorOptions& options);

// clang-format off
// The memory that a rank's engine will take, by arithmetic alone (ZeRO, Rajbhandari et al. 2020).
// P parameters, D = dp_shard, two fp32 moments; bytes:
//
//   zero   fp32            bf16 or fp16 (held as halves, fp32 master and gradients)
//   0      16P             18P
//   1      8P + 8P/D       6P + 12P/D
//   2      4P + 12P/D      2P + 16P/D
//   3      16P/D           16P/D
//
// and the rings that parameters are gathered into and gradients are reduced from. zero 2 and 3
// without a reduction per micro-batch keep 4P of gradients instead of 4P/D. Frozen parameters have
// neither gradients nor moments. What is offloaded counts as the host's, and two buffers for the
// largest bucket's states as staging. What the ledger of a StepExecutor has beyond it is the padding
// of buckets. Policy is asked of BucketPlacement, as the engine does it; bytes are counted here anew.
// clang-format on
MemoryLedger predict_memory(const ChainSize& chain, const MeshShape& mesh,
                            const ShardingPolicy& policy, const ExecutorOptions& options);

// Bytes of the states (master weights, moments) that a rank writes in a checkpoint: all of its
// shard, of which the copies in dp_replicate write equal parts.
int64_t written_state_bytes(const ChainSize& chain, const MeshShape& mesh,
                            const ShardingPolicy& policy);

// Bytes of the buffer in which a TpGradientSum packs the small ones of the gradients that it
// completes, for the rank that holds shard number `shard`.
int64_t tp_sum_bytes(const BucketPlan& plan, const MeshShape& mesh, int shard);

}  // namespace tessera

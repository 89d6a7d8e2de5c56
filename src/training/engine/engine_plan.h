#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/executor/bucket_set.h"
#include "training/engine/memory_advice.h"
#include "parallel/executor/stage.h"
#include "parallel/tensor_parallel/tensor_parallel.h"

namespace tessera {

// A rank's model before any of its memory is there: the stages, the bucket of each parameter, and
// what a step needs. Everything that a configuration can get wrong about it is found here.
struct EnginePlan {
  std::unique_ptr<TpTime> tp_time;  // what the stages' layers add to
  std::vector<std::unique_ptr<Stage>> owned_stages;
  std::vector<Stage*> stages;
  BucketPlan buckets;
  MemoryCase memory;               // what the memory of a rank depends on
  int64_t micro_batch_tokens = 0;  // targets of one micro-batch, which is what logits are made for

  // The name of each bucket's stage; of several that read it, the first.
  std::vector<std::string> bucket_stages() const;
  // The most bytes of logits that exist at once. The parameters have their dtypes by now.
  int64_t logits_bytes() const;
};

// The plan of the rank that `mesh` belongs to, for samples of `seq_len` tokens. UserError for
// patterns of names (optimizer.groups, precision.keep_fp32) that fit no parameter. `mesh` outlives
// the plan. Does not communicate.
EnginePlan plan_engine(const Config& config, Mesh& mesh, int64_t seq_len);

// What arithmetic says that the rank with shard number `shard` holds, the loss's buffers included;
// it asks nothing that was allocated. The parameters' values, or what stands for them, have their
// dtypes.
MemoryLedger predicted_memory(const EnginePlan& plan, int shard);

}  // namespace tessera

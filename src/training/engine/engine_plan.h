#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/executor/bucket_set.h"
#include "parallel/executor/stage.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "training/engine/memory_advice.h"

namespace tessera {

// A rank's model before any of its memory is there: the stages, the bucket of each parameter, and
// what a step needs. Everything that a configuration can get wrong about it is found here.
struct EnginePlan {
  std::unique_ptr<TpTime> tp_time;  // the layers add their times of communication to it
  std::vector<std::unique_ptr<Stage>> owned_stages;
  std::vector<Stage*> stages;
  BucketPlan buckets;
  MemoryCase memory;               // what the memory of a rank depends on
  int64_t save_staging_bytes = 0;  // as asked for; a host may have less (SaveStaging)
  int64_t micro_batch_tokens = 0;  // targets of one micro-batch, which is what logits are made for

  // For each bucket the name of its stage; if several stages use the bucket, of the first of them.
  std::vector<std::string> bucket_stages() const;
  // The most bytes of logits that exist at once. The parameters, or their stand-ins
  // (memory_forecast.cpp), must have their final dtypes.
  int64_t logits_bytes() const;
};

// The plan of the rank that `mesh` belongs to, for samples of `seq_len` tokens. UserError for
// patterns of names (optimizer.groups, precision.keep_fp32) that fit no parameter. `mesh` outlives
// the plan. Does not communicate.
EnginePlan plan_engine(const Config& config, Mesh& mesh, int64_t seq_len);

// The bytes by class that the rank with number `shard` in dp_shard will hold, the loss's buffers
// included, by arithmetic on the plan alone: nothing needs to have been allocated. The parameters,
// or their stand-ins (memory_forecast.cpp), must have their final dtypes.
MemoryLedger predicted_memory(const EnginePlan& plan, int shard);

}  // namespace tessera

#include "training/engine/memory_forecast.h"

#include <ATen/ATen.h>

#include "base/text/quantities.h"
#include "parallel/imagined_mesh.h"
#include "training/engine/engine_plan.h"
#include "training/engine/out_of_memory.h"
#include "training/output/memory_report.h"

namespace tessera {
namespace {

// Empty tensors of the dtypes that the parameters will have.
void stand_in(const BucketPlan& plan) {
  for (const BucketPlan::Bucket& bucket : plan.buckets)
    for (const ParameterPack* pack : bucket.packs)
      for (Parameter* part : pack->parts) {
        part->value = at::empty({0}, bucket.options.params);
        if (bucket.options.trainable) part->grad = part->value;
      }
}

}  // namespace

MemoryForecast forecast_memory(const Config& config, const MeshShape& mesh) {
  Mesh place = imagined_mesh(mesh, /*rank=*/0);
  // Length 1, since tables of positions grow with it and no parameter depends on it.
  const EnginePlan plan = plan_engine(config, place, /*seq_len=*/1);
  stand_in(plan.buckets);
  return {plan.memory, predicted_memory(plan, /*shard=*/0)};
}

void check_memory_limit(const MemoryForecast& forecast, int64_t limit, RuleReport& report) {
  if (forecast.ledger.total() <= limit) return;
  // The loss's buffers shrink with the micro-batch as activations do, so they are passed for these,
  // and with them the copies for checkpoints, which checkpoint.staging_mib limits.
  const int64_t copies = forecast.ledger.bytes(MemoryClass::kSnapshot);
  report.broken({"parallel.zero", "parallel.dp_shard", "parallel.tp", "memory.offload"},
                "memory: rank 0 would hold {}in memory {}, more than the {} of its device, and "
                "activations come on top; {}",
                ledger_text(forecast.ledger), bytes_text(forecast.ledger.total()),
                bytes_text(limit),
                advices_text(advise_memory(forecast.run, limit,
                                           forecast.ledger.bytes(MemoryClass::kLogits) + copies)));
}

}  // namespace tessera

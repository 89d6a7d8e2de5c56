#include "training/engine/run_memory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <memory>

#include "optim/parameter_groups.h"
#include "parallel/imagined_mesh.h"
#include "parallel/keep_fp32.h"
#include "training/engine/out_of_memory.h"
#include "training/engine/run_options.h"
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

MemoryCase memory_case(const Config& config, const MeshShape& mesh,
                       const std::vector<Stage*>& stages, const BucketPlan& plan) {
  const ExecutorOptions options = executor_options(config, static_cast<int>(stages.size()));
  return {chain_size(stages, plan, options),
          mesh,
          policy_of(config),
          options,
          config.training.micro_batch_size,
          config.memory.recompute == Recompute::kSelective};
}

MemoryLedger predicted_memory(const Config& config, const MemoryCase& run,
                              const std::vector<Stage*>& stages, const BucketPlan& plan,
                              int shard) {
  MemoryLedger ledger = predict_memory(run.chain, run.mesh, run.policy, run.options);
  ledger.add(MemoryClass::kStaging, tp_sum_bytes(plan, run.mesh, shard));
  const int64_t tokens = config.training.micro_batch_size * config.data.targets_per_sample();
  for (const Stage* stage : stages) ledger.add(MemoryClass::kLogits, stage->logits_bytes(tokens));
  return ledger;
}

MemoryForecast forecast_memory(const Config& config, const MeshShape& mesh) {
  Mesh place = imagined_mesh(mesh, /*rank=*/0);
  // Tables of positions grow with the length and hold no parameters that depend on it.
  const auto owned = config.model->make_stages(/*seq_len=*/1, place, model_options(config));
  std::vector<Stage*> stages;
  std::vector<ParameterTable*> tables;
  for (const auto& stage : owned) {
    stages.push_back(stage.get());
    tables.push_back(&stage->table());
  }
  resolve_groups(config.optimizer.groups, tables);
  resolve_keep_fp32("precision.keep_fp32", config.precision.keep_fp32, tables);
  const BucketPlan plan = plan_buckets(stages, policy_of(config));
  stand_in(plan);
  MemoryForecast forecast{memory_case(config, mesh, stages, plan), {}};
  forecast.ledger = predicted_memory(config, forecast.run, stages, plan, /*shard=*/0);
  return forecast;
}

void check_memory_limit(const MemoryForecast& forecast, int64_t limit, RuleReport& report) {
  if (forecast.ledger.total() <= limit) return;
  // The loss's buffers go with the micro-batch, as activations do.
  report.broken({"parallel.zero", "parallel.dp_shard", "parallel.tp", "memory.offload"},
                "memory: rank 0 would hold {}in memory {}, more than the {} of its device, and "
                "activations come on top; {}",
                ledger_text(forecast.ledger), bytes_text(forecast.ledger.total()),
                bytes_text(limit),
                advices_text(advise_memory(forecast.run, limit,
                                           forecast.ledger.bytes(MemoryClass::kLogits))));
}

}  // namespace tessera

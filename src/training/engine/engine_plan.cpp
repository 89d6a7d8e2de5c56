#include "training/engine/engine_plan.h"

#include "optim/parameter_groups.h"
#include "parallel/executor/memory_model.h"
#include "parallel/keep_fp32.h"
#include "parallel/mesh.h"
#include "training/engine/run_options.h"
#include "training/engine/save_staging.h"

namespace tessera {

std::vector<std::string> EnginePlan::bucket_stages() const {
  std::vector<std::string> names(buckets.buckets.size());
  for (size_t i = stages.size(); i-- > 0;)
    for (const int bucket : buckets.of_stage[i])
      names[static_cast<size_t>(bucket)] = stages[i]->name();
  return names;
}

int64_t EnginePlan::logits_bytes() const {
  int64_t bytes = 0;
  for (const Stage* stage : stages) bytes += stage->logits_bytes(micro_batch_tokens);
  return bytes;
}

EnginePlan plan_engine(const Config& config, Mesh& mesh, int64_t seq_len) {
  EnginePlan plan;
  plan.tp_time = std::make_unique<TpTime>();
  ModelOptions options = model_options(config);
  options.tensor_parallel.time = plan.tp_time.get();
  plan.owned_stages = config.model->make_stages(seq_len, mesh, options);
  std::vector<ParameterTable*> tables;
  for (const auto& stage : plan.owned_stages) {
    plan.stages.push_back(stage.get());
    tables.push_back(&stage->table());
  }
  resolve_groups(config.optimizer.groups, tables);
  resolve_keep_fp32("precision.keep_fp32", config.precision.keep_fp32, tables);
  const ShardingPolicy policy = policy_of(config);
  plan.buckets = plan_buckets(plan.stages, policy);
  const ExecutorOptions executor = executor_options(config, static_cast<int>(plan.stages.size()));
  plan.memory = {chain_size(plan.stages, plan.buckets, executor),
                 mesh.shape(),
                 policy,
                 executor,
                 config.training.micro_batch_size,
                 config.memory.recompute == Recompute::kSelective,
                 config.device != "cpu"};
  plan.save_staging_bytes =
      save_staging_bytes(config, written_state_bytes(plan.memory.chain, plan.memory.mesh, policy));
  plan.micro_batch_tokens = config.training.micro_batch_size * config.data.targets_per_sample();
  return plan;
}

MemoryLedger predicted_memory(const EnginePlan& plan, int shard) {
  const MemoryCase& memory = plan.memory;
  MemoryLedger ledger = predict_memory(memory.chain, memory.mesh, memory.policy, memory.options);
  ledger.add(MemoryClass::kStaging, tp_sum_bytes(plan.buckets, memory.mesh, shard));
  ledger.add(save_staging_class(memory.can_offload), plan.save_staging_bytes);
  ledger.add(MemoryClass::kLogits, plan.logits_bytes());
  return ledger;
}

}  // namespace tessera

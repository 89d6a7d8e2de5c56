#include "parallel/executor/memory_model.h"

#include <algorithm>
#include <map>

#include "parallel/fsdp/bucket_layout.h"
#include "parallel/fsdp/bucket_placement.h"
#include "parallel/fsdp/tp_gradient_sum.h"

namespace tessera {
namespace {

int64_t bytes_of(int64_t numel, at::ScalarType dtype) {
  return numel * static_cast<int64_t>(c10::elementSize(dtype));
}

// The bytes of one bucket.
class BucketModel {
 public:
  BucketModel(const ChainSize::Bucket& bucket, const MeshShape& mesh, const ShardingPolicy& policy)
      : placement_(policy, mesh, {bucket.params, bucket.trainable, bucket.uses}),
        numel_(bucket.numel),
        shard_((bucket.numel + mesh.dp_shard - 1) / mesh.dp_shard) {}

  void add_states(MemoryLedger& ledger) const {
    if (placement_.full_copy() == FullCopy::kKept)
      ledger.add(MemoryClass::kParameters, bytes_of(numel_, placement_.params()));
    if (!placement_.master_in_copy())
      ledger.add(class_of(placement_.master_place(), MemoryClass::kMaster), master_bytes());
    if (!placement_.trainable()) return;
    ledger.add(class_of(placement_.gradient_place(), MemoryClass::kGradients),
               bytes_of(placement_.keeps_full_gradient() ? numel_ : shard_, placement_.wide()));
    ledger.add(class_of(placement_.moments_place(), MemoryClass::kMoments),
               placement_.moments() * moment_bytes());
  }

  // Bytes on the device for the states of an offloaded bucket while it is updated.
  int64_t update_buffer() const {
    if (!placement_.trainable()) return 0;
    return OffloadStore::padded_bytes(master_bytes()) +
           placement_.moments() * OffloadStore::padded_bytes(moment_bytes()) +
           OffloadStore::padded_bytes(shard_slot());
  }
  // Bytes on the device for an offloaded master that is converted to another dtype.
  int64_t converted_master() const {
    return placement_.params() == placement_.wide() ? 0 : master_bytes();
  }
  // Bytes on the device for an offloaded gradient while it is reduced.
  int64_t shard_slot() const {
    const bool offloaded =
        placement_.trainable() && placement_.gradient_place() == StatePlace::kPinnedHost;
    return offloaded ? bytes_of(shard_, placement_.wide()) : 0;
  }

  // Of the states in a checkpoint, written by this rank.
  int64_t written_bytes(int dp_replicate) const {
    const int64_t moment = placement_.trainable() ? bytes_of(shard_, placement_.moment_dtype()) : 0;
    return (bytes_of(shard_, placement_.wide()) + placement_.moments() * moment) / dp_replicate;
  }

  BucketNeeds needs() const {
    const int64_t copy = bytes_of(numel_, placement_.params());
    BucketNeeds needs;
    if (placement_.full_copy() == FullCopy::kGathered) needs.gather_bytes = copy;
    needs.refreshes = placement_.full_copy() == FullCopy::kKept;
    if (placement_.trainable() && !placement_.adds_directly()) needs.grad_bytes = copy;
    if (shard_slot() > 0) needs.shard_operations = placement_.reduce_operations();
    return needs;
  }

  // Bytes for a reduction that arrives beside the kept gradient, to be added to it.
  int64_t staging() const {
    const bool needed = placement_.trainable() && placement_.adds_reductions();
    return needed ? bytes_of(shard_, placement_.wide()) : 0;
  }

  // Bytes for a reduction in bf16: the gradient as it is sent, and the shard as it arrives.
  int64_t wire() const {
    if (!placement_.trainable() || placement_.reduce() == GradReduce::kWide) return 0;
    return bytes_of(numel_ + shard_, at::kBFloat16);
  }

 private:
  int64_t updated() const { return placement_.updates_everything() ? numel_ : shard_; }
  int64_t master_bytes() const { return bytes_of(updated(), placement_.wide()); }
  int64_t moment_bytes() const { return bytes_of(updated(), placement_.moment_dtype()); }

  BucketPlacement placement_;
  int64_t numel_;
  int64_t shard_;
};

int64_t sum(const std::vector<int64_t>& values) {
  int64_t total = 0;
  for (const int64_t value : values) total += value;
  return total;
}

}  // namespace

ChainSize chain_size(const std::vector<Stage*>& stages, const BucketPlan& plan,
                     const ExecutorOptions& options) {
  ChainSize chain;
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    int64_t numel = 0;
    for (const ParameterPack* pack : bucket.packs)
      for (const Parameter* part : pack->parts) numel += part->box.numel();
    chain.buckets.push_back(
        {numel, bucket.options.params, bucket.options.trainable, bucket.options.uses});
  }
  chain.stages = stage_needs(stages, plan.of_stage, options);
  return chain;
}

MemoryLedger predict_memory(const ChainSize& chain, const MeshShape& mesh,
                            const ShardingPolicy& policy, const ExecutorOptions& options) {
  MemoryLedger ledger;
  std::vector<BucketModel> models;
  std::vector<BucketNeeds> needs;
  int64_t largest_gather = 0, update_buffer = 0, converted_master = 0;
  for (const ChainSize::Bucket& bucket : chain.buckets) {
    models.emplace_back(bucket, mesh, policy);
    models.back().add_states(ledger);
    needs.push_back(models.back().needs());
    largest_gather = std::max(largest_gather, needs.back().gather_bytes);
    update_buffer = std::max(update_buffer, models.back().update_buffer());
    converted_master = std::max(converted_master, models.back().converted_master());
  }
  const SlotPlans plans = plan_executor(needs, chain.stages, options);
  ledger.add(MemoryClass::kGatherRing, sum(plans.eval.gather_slot_bytes));
  ledger.add(MemoryClass::kReduceRing, sum(plans.train.grad_slot_bytes));
  // A stage reduces all its buckets at once. Buffer i serves the i-th bucket of every stage.
  std::vector<int64_t> staging, wire, shard_slots;
  for (const StageNeeds& stage : chain.stages) {
    staging.resize(std::max(staging.size(), stage.buckets.size()));
    wire.resize(staging.size());
    shard_slots.resize(staging.size());
    for (size_t i = 0; i < stage.buckets.size(); ++i) {
      const BucketModel& model = models[static_cast<size_t>(stage.buckets[i])];
      staging[i] = std::max(staging[i], model.staging());
      wire[i] = std::max(wire[i], model.wire());
      shard_slots[i] = std::max(shard_slots[i], model.shard_slot());
    }
  }
  ledger.add(MemoryClass::kStaging, sum(staging) + sum(wire) + kShardSlotSets * sum(shard_slots));
  if (policy.offload_optimizer)
    ledger.add(MemoryClass::kStaging, 2 * update_buffer + converted_master);
  if (options.poison_released) ledger.add(MemoryClass::kPoison, largest_gather);
  return ledger;
}

int64_t written_state_bytes(const ChainSize& chain, const MeshShape& mesh,
                            const ShardingPolicy& policy) {
  int64_t bytes = 0;
  for (const ChainSize::Bucket& bucket : chain.buckets)
    bytes += BucketModel(bucket, mesh, policy).written_bytes(mesh.dp_replicate);
  return bytes;
}

int64_t tp_sum_bytes(const BucketPlan& plan, const MeshShape& mesh, int shard) {
  if (mesh.tp == 1) return 0;
  std::map<int, int64_t> bytes;  // by the number of ranks that sum
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    const BucketPlacement placement = bucket.options.placement(mesh);
    if (!placement.trainable()) continue;
    const BucketLayout layout(bucket.packs, mesh.dp_shard);
    const bool whole = placement.updates_everything();
    const int64_t held = whole ? layout.numel : layout.numel / mesh.dp_shard;
    const int64_t begin = whole ? 0 : shard * held;
    for (const Segment& segment : layout.segments(begin, begin + held, begin)) {
      const ParameterSpec& spec = segment.parameter->spec;
      if (spec.sums_gradient_over_tp() && segment.slice.numel() < kLargeTpGradient)
        bytes[spec.tp.copies(mesh.tp)] += bytes_of(segment.slice.numel(), placement.wide());
    }
  }
  int64_t most = 0;
  for (const auto& [copies, sum_of] : bytes) most = std::max(most, sum_of);
  return most;
}

}  // namespace tessera

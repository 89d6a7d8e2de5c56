#include "parallel/executor/memory_model.h"

#include <algorithm>
#include <map>

#include "parallel/fsdp/bucket_layout.h"
#include "parallel/fsdp/tp_gradient_sum.h"

namespace tessera {
namespace {

int64_t bytes_of(int64_t numel, at::ScalarType dtype) {
  return numel * static_cast<int64_t>(c10::elementSize(dtype));
}

// One bucket's arithmetic.
class BucketModel {
 public:
  BucketModel(const ChainSize::Bucket& bucket, const MeshShape& mesh, const ShardingPolicy& policy)
      : bucket_(bucket),
        mesh_(mesh),
        policy_(policy),
        wide_(master_dtype(bucket.params)),
        shard_((bucket.numel + mesh.dp_shard - 1) / mesh.dp_shard) {}

  void add_states(MemoryLedger& ledger) const {
    if (keeps_copy()) ledger.add(MemoryClass::kParameters, bytes_of(bucket_.numel, bucket_.params));
    const bool offloads = policy_.offload_optimizer;
    // Beside a full copy of its own dtype the master is a slice of that.
    if (!keeps_copy() || bucket_.params != wide_ || offloads)
      ledger.add(offloads ? MemoryClass::kOffloadHost : MemoryClass::kMaster,
                 bytes_of(updated(), wide_));
    if (!bucket_.trainable) return;
    ledger.add(offloads_gradient() ? MemoryClass::kOffloadHost : MemoryClass::kGradients,
               bytes_of(policy_.keeps_full_gradients() ? bucket_.numel : shard_, wide_));
    ledger.add(offloads                  ? MemoryClass::kOffloadHost
               : policy_.moments_on_disk ? MemoryClass::kOffloadFile
                                         : MemoryClass::kMoments,
               policy_.moments * moment_bytes());
  }

  // What an update of an offloaded bucket takes on the device.
  int64_t update_buffer() const {
    if (!bucket_.trainable) return 0;
    return OffloadStore::padded_bytes(bytes_of(updated(), wide_)) +
           policy_.moments * OffloadStore::padded_bytes(moment_bytes()) +
           OffloadStore::padded_bytes(shard_slot());
  }
  // Its master on the way to a copy of another dtype.
  int64_t converted_master() const {
    return bucket_.params == wide_ ? 0 : bytes_of(updated(), wide_);
  }
  // An offloaded gradient while it is reduced.
  int64_t shard_slot() const { return offloads_gradient() ? bytes_of(shard_, wide_) : 0; }

  BucketNeeds needs() const {
    BucketNeeds needs;
    if (!policy_.keeps_full_parameters() && !resident())
      needs.gather_bytes = bytes_of(bucket_.numel, bucket_.params);
    needs.refreshes = keeps_copy();
    if (bucket_.trainable && !direct()) needs.grad_bytes = bytes_of(bucket_.numel, bucket_.params);
    return needs;
  }

  // What arrives for a gradient that is there already.
  int64_t staging() const {
    const bool needed = bucket_.trainable && (!policy_.keeps_full_gradients() || bucket_.uses > 1);
    return needed ? bytes_of(shard_, wide_) : 0;
  }

  int64_t wire() const {
    if (!bucket_.trainable || policy_.reduce == GradReduce::kWide) return 0;
    return bytes_of(bucket_.numel + shard_, at::kBFloat16);
  }

 private:
  int64_t moment_bytes() const {
    return bytes_of(updated(), wide_ == at::kDouble ? wide_ : policy_.moment_dtype);
  }
  bool offloads_gradient() const {
    return bucket_.trainable && policy_.offload_gradients && !policy_.keeps_full_gradients();
  }
  // Stages read the master itself.
  bool resident() const {
    return !policy_.offload_optimizer && bucket_.params == wide_ &&
           (policy_.zero == 0 || mesh_.dp_shard == 1);
  }
  bool keeps_copy() const { return policy_.keeps_full_parameters() && !resident(); }
  int64_t updated() const { return policy_.zero == 0 ? bucket_.numel : shard_; }
  // The backward pass adds into the kept gradient.
  bool direct() const {
    return !offloads_gradient() && bucket_.params == wide_ && bucket_.uses == 1 &&
           (policy_.keeps_full_gradients() ||
            (mesh_.dp_shard == 1 && policy_.reduce == GradReduce::kWide));
  }

  const ChainSize::Bucket& bucket_;
  const MeshShape& mesh_;
  const ShardingPolicy& policy_;
  at::ScalarType wide_;
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
  // Buffers number i serve the i-th bucket of whichever stage is being reduced.
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
  ledger.add(MemoryClass::kStaging, sum(staging) + sum(wire) + 2 * sum(shard_slots));
  if (policy.offload_optimizer)
    ledger.add(MemoryClass::kStaging, 2 * update_buffer + converted_master);
  if (options.poison_released) ledger.add(MemoryClass::kPoison, largest_gather);
  return ledger;
}

int64_t tp_sum_bytes(const BucketPlan& plan, const MeshShape& mesh, int shard) {
  if (mesh.tp == 1) return 0;
  std::map<int, int64_t> bytes;  // by the number of ranks that sum
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    if (!bucket.options.trainable) continue;
    const BucketLayout layout(bucket.packs, mesh.dp_shard);
    const bool whole = bucket.options.policy.zero == 0;
    const int64_t held = whole ? layout.numel : layout.numel / mesh.dp_shard;
    const int64_t begin = whole ? 0 : shard * held;
    for (const Segment& segment : layout.segments(begin, begin + held, begin)) {
      const ParameterSpec& spec = segment.parameter->spec;
      if (spec.sums_gradient_over_tp() && segment.slice.numel() < kLargeTpGradient)
        bytes[spec.tp.copies(mesh.tp)] +=
            bytes_of(segment.slice.numel(), master_dtype(bucket.options.params));
    }
  }
  int64_t most = 0;
  for (const auto& [copies, sum_of] : bytes) most = std::max(most, sum_of);
  return most;
}

}  // namespace tessera

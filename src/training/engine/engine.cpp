#include "training/engine/engine.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "config/keys/with_keys.h"
#include "optim/grad_norm.h"
#include "parallel/fsdp/compare_replicas.h"
#include "parallel/fsdp/initialize.h"
#include "training/engine/nonfinite.h"

namespace tessera {
namespace {

std::unique_ptr<MomentFile> moment_file(const EnginePlan& plan, const Config& config) {
  if (!plan.memory.policy.moments_on_disk) return nullptr;
  return with_keys<UserError>("memory.offload_dir", [&] {
    return std::make_unique<MomentFile>(
        config.memory.offload_dir, moment_store_bytes(plan.buckets, plan.memory.mesh.dp_shard));
  });
}

}  // namespace

Engine::Engine(EnginePlan plan, const Config& config, Mesh& mesh)
    : plan_(std::move(plan)),
      optimizer_(config.optimizer),
      mesh_(mesh),
      tensors_(tensor_infos(plan_.stages)),
      bucket_stages_(plan_.bucket_stages()),
      moments_(moment_file(plan_, config)),
      bucket_set_(make_buckets(plan_.buckets, mesh, moments_.get())),
      buckets_(bucket_set_.pointers()),
      executor_(plan_.stages, buckets_, bucket_set_.of_stage, plan_.memory.options),
      tp_gradients_(buckets_, mesh),
      ledger_(executor_.ledger()) {
  if (bucket_set_.offload) bucket_set_.offload->add_to(ledger_);
  tp_gradients_.add_to(ledger_);
  ledger_.add(MemoryClass::kLogits, plan_.logits_bytes());
}

void Engine::initialize(uint64_t seed, const GiveUp& give_up) {
  for (FlatBucket* bucket : buckets_) {
    if (give_up()) break;
    initialize_weights(*bucket, seed);
  }
  release_moments();
  executor_.parameters_changed();
}

void Engine::load(const std::vector<std::string>& states, StateSource& source,
                  const GiveUp& give_up) {
  for (FlatBucket* bucket : buckets_) {
    if (give_up()) break;
    load_states({bucket}, states, source);
  }
  release_moments();
  executor_.parameters_changed();
}

Snapshot Engine::snapshot(const std::vector<std::string>& states) const {
  return take_snapshot(buckets_, mesh_, states);
}

void Engine::release_moments() {
  if (moments_) moments_->release();
}

at::Tensor Engine::forward_backward(const MicroBatch& batch, MicroStep step) {
  return executor_.forward_backward(batch, step);
}

void Engine::complete_gradients() {
  tp_gradients_.run();
}

at::Tensor Engine::squared_grad_norms() const {
  return local_squared_grad_norms(buckets_, mesh_);
}

void Engine::update(const Update& update) {
  apply_update(buckets_, optimizer_, update);
  executor_.parameters_changed();
}

std::vector<double> Engine::evaluate(const MicroBatch& batch) {
  return executor_.evaluate(batch);
}

std::optional<std::string> Engine::first_nonfinite_gradient() {
  return tessera::first_nonfinite_gradient(buckets_, tensors_, mesh_);
}

void Engine::compare_replicas(int64_t step) {
  with_keys<ReplicasDiffer>("debug.compare_replicas_every",
                            [&] { tessera::compare_replicas(buckets_, mesh_, step); });
}

}  // namespace tessera

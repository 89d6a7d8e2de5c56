#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "optim/optimizer.h"
#include "parallel/executor/step_executor.h"
#include "parallel/fsdp/moment_file.h"
#include "parallel/fsdp/tp_gradient_sum.h"
#include "training/engine/engine_plan.h"
#include "training/engine/train_state.h"

namespace tessera {

// One rank's model at work: its stages, the flat buckets that hold every state, the schedule that
// drives them, the sums of tensor parallelism and the memory of it all. It knows what a step is
// made of and nothing of when one is due, of data, files or logs:
//
//   fill, or load a checkpoint
//   each step    forward_backward() of every micro-batch -> complete_gradients()
//                -> squared_grad_norms() -> update(), or no update
//   a save       snapshot() -> written -> release_moments()
//
// Methods that communicate say so; all ranks of the mesh call these in the same order.
class Engine {
 public:
  // Whether to give up filling the states, because the user asked for a stop. The engine asks
  // before it fills each bucket; on true it leaves the rest as it is, and the states are then of no
  // use.
  using GiveUp = std::function<bool()>;

  // Allocates everything that training needs. UserError for a memory.offload_dir that cannot hold
  // the moments. Collective. `mesh` outlives the engine.
  Engine(EnginePlan plan, const Config& config, Mesh& mesh);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- States in and out

  // Random weights, each tensor's by `seed` and its name: the same on every mesh.
  void initialize(uint64_t seed, const GiveUp& give_up);
  // Fills the named states (`param`, the optimizer's moments) from what was stored, each rank its
  // own parts. Errors as the source's read().
  void load(
      const std::vector<std::string>& states, StateSource& source,
      const GiveUp& give_up = [] { return false; });
  // This rank's pieces of the named states. They point into the engine's memory (of states on a
  // GPU: into copies that the Snapshot owns), so they must be written before the next update.
  Snapshot snapshot(const std::vector<std::string>& states) const;
  // Moments that lie in a file (memory.offload_dir) are dropped from the host's memory, into which
  // reading or filling them has brought them; without such a file nothing happens.
  void release_moments();

  // ---- A step

  // One micro-batch, which lies on the host. Returns this rank's loss sum, fp64 [] on the device.
  // Collective.
  at::Tensor forward_backward(const MicroBatch& batch, MicroStep step);
  // After the last micro-batch: what is partial over tensor parallelism is summed. Collective.
  void complete_gradients();
  // This rank's part of each bucket's squared gradient norm, fp64 [buckets] where the gradients
  // lie.
  at::Tensor squared_grad_norms() const;
  // One update of all that this rank's optimizer holds.
  void update(const Update& update);
  // One micro-batch forward alone: the scalars of the last stage (models/scores.h). Collective.
  std::vector<double> evaluate(const MicroBatch& batch);

  // ---- What is wrong

  // The first parameter whose gradient is not finite on any rank. Collective.
  std::optional<std::string> first_nonfinite_gradient();
  // Error where ranks differ in what they must hold alike, at step `step`. Collective.
  void compare_replicas(int64_t step);

  // ---- What it is

  Mesh& mesh() { return mesh_; }
  const Device& device() const { return mesh_.device(); }
  const std::vector<FlatBucket*>& buckets() const { return buckets_; }
  const std::vector<std::string>& bucket_stages() const { return bucket_stages_; }
  // Bytes by class: what the engine has allocated, and what a step will allocate for the loss's
  // buffers.
  const MemoryLedger& ledger() const { return ledger_; }
  // The same by arithmetic alone, from the counts of parameters.
  MemoryLedger predicted_memory() const {
    return tessera::predicted_memory(plan_, mesh_.dp_shard_rank());
  }
  // A warning for the user about the folder of the moments (memory.offload_dir); empty: none.
  std::string warning() const { return moments_ ? moments_->warning() : std::string(); }
  // Communication of tensor parallelism since the last call.
  TpTime take_tp_time() { return std::exchange(*plan_.tp_time, {}); }

 private:
  EnginePlan plan_;
  const OptimizerConfig optimizer_;
  Mesh& mesh_;
  const std::vector<TensorInfo> tensors_;
  const std::vector<std::string> bucket_stages_;
  std::unique_ptr<MomentFile> moments_;  // null: they lie in ordinary memory
  BucketSet bucket_set_;
  std::vector<FlatBucket*> buckets_;
  StepExecutor executor_;
  TpGradientSum tp_gradients_;
  MemoryLedger ledger_;
};

}  // namespace tessera

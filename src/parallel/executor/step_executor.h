#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "parallel/device/device.h"
#include "parallel/executor/executor_plan.h"
#include "parallel/executor/reduce_memory.h"
#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"
#include "parallel/memory_ledger.h"

namespace tessera {

// Drives a chain of stages by an explicit schedule: no module hooks, so the order of gathers,
// computes and reduces is plain code and the same on every rank by construction. The stages of ZeRO
// are policies of the buckets; at zero 3:
//
//   turn        fwd 0      fwd 1      ...   fwd+bwd n-1     bwd n-2        ...  bwd 0
//   gather      1          2                (kept)          n-3
//   compute     stage 0    stage 1          stage n-1       stage n-2           stage 0
//   reduce                                                  grads of n-1        grads of 1
//
// Invariants
// - A stage's parameters are usable exactly during the turns of its holds (SlotPlan).
// - Gathers and reduces run on communicators of their own, both beside the computation, and both
//   are waited for before their memory is used again. On a GPU each of the three is a stream, and
//   the waits are the events that device/stream.h draws; the host waits for none of them.
// - Inputs of a stage are detached leaves; backward runs stage by stage and passes only the outputs
//   that have a gradient.
class StepExecutor {
 public:
  // stage_buckets[i]: indices into `buckets` of what stages[i] reads. All outlive the executor.
  StepExecutor(const std::vector<Stage*>& stages, const std::vector<FlatBucket*>& buckets,
               const std::vector<std::vector<int>>& stage_buckets, ExecutorOptions options);
  // If an operation is on its way (an error unwinds), the world is aborted: its memory goes now.
  ~StepExecutor();
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // One micro-batch, which lies on the host, forward and backward. After the last micro-batch of a
  // step the buckets' grad is the sum over all of them and over all data-parallel ranks. Returns
  // this rank's loss sum, fp64
  // [] on the device: reading it there and then would make the host wait.
  at::Tensor forward_backward(const MicroBatch& batch, MicroStep step);

  // One micro-batch forward alone. Returns the scalars of the last stage: this rank's loss sum,
  // and what the model counts besides.
  std::vector<double> evaluate(const MicroBatch& batch);

  // The masters of the trainable buckets have changed.
  void parameters_changed();

  // What this executor and its buckets have allocated.
  MemoryLedger ledger() const;

 private:
  struct StageState {
    Stage* stage;
    std::vector<int> buckets;  // indices of what it reads
    bool recomputes;
    TensorList inputs;   // detached leaves
    TensorList outputs;  // with their graph; empty under recompute
  };
  struct BucketState {
    FlatBucket* bucket;
    Event gathered;          // recorded behind its gather
    bool gathering = false;  // the gather was started and not yet waited for
  };
  struct Slot {
    at::Tensor memory;
    Event free;  // recorded behind its last reader
  };
  // A reduction on its way; slot -1: none is to be freed.
  struct Reduce {
    FlatBucket* bucket;
    int slot;
  };

  std::vector<StageState> make_stages(const std::vector<Stage*>& stages,
                                      const std::vector<std::vector<int>>& stage_buckets) const;
  std::vector<BucketState> make_buckets(const std::vector<FlatBucket*>& buckets) const;
  std::vector<Slot> make_slots(const std::vector<int64_t>& bytes) const;
  ReduceMemory make_reduce_memory() const;
  at::Tensor make_poison() const;

  MicroBatch begin_pass(const MicroBatch& host_batch);
  void start_gathers(const SlotPlan& plan, int turn, size_t& next);
  void finish_gathers(int stage);
  void release_after(const SlotPlan& plan, int turn);

  TensorList run_stage(int stage, const TensorList& inputs, const MicroBatch& batch);
  void forward_turn(int stage, const MicroBatch& batch);
  void backward_turn(int stage, const MicroBatch& batch, TensorList& grads);

  ReduceStep reduce_step(int turn, int bucket, MicroStep step) const;
  int grad_slot(int turn, int bucket) const;
  void begin_grads(int turn, MicroStep step);
  void start_reduces(int turn, MicroStep step);
  void advance_reduces();
  void finish_reduces();
  void trace(const char* what, const std::string& name);

  ExecutorOptions options_;
  Device device_;
  Stream compute_, gather_, reduce_;
  // `compute` has come to the start of a pass; to the end of a stage's backward.
  Event started_, filled_;
  Event reduces_done_;
  std::vector<StageState> stages_;
  std::vector<BucketState> buckets_;
  SlotPlans plans_;
  std::vector<Slot> gather_slots_;
  std::vector<Slot> grad_slots_;
  ReduceMemory reduce_memory_;
  at::Tensor poison_;             // undefined: released parameters point at nothing
  std::vector<Reduce> reducing_;  // in the order in which they were started
};

}  // namespace tessera

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

// Runs micro-batches through a chain of stages, forward and backward, and moves parameters and
// gradients between ranks beside the computation. The schedule is a list of turns that is made
// before the first step and followed by plain code, without module hooks, so the order of gathers,
// computes and reduces is the same on every rank by construction. The stages of ZeRO are policies
// of the buckets, not schedules; at zero 3, what runs at the same time:
//
//   turn        fwd 0      fwd 1      ...   fwd+bwd n-1     bwd n-2        ...  bwd 0
//   gather      1          2                (kept)          n-3
//   compute     stage 0    stage 1          stage n-1       stage n-2           stage 0
//   reduce                                                  grads of n-1        grads of 1
//
// Invariants
// - A gathered bucket's parameters can be read in the turns of its holds (SlotPlan) and no others.
// - Gathers and reduces each have a communicator of their own, and memory is used again only when
//   the operation that used it before has been waited for. On a GPU compute, gather and reduce are
//   streams, which wait for each other by the events that device/stream.h draws; the host waits for
//   none of them.
// - Each stage has an autograd graph of its own. Its inputs are detached leaves; their gradients
//   start the backward of the stage before, as those of its outputs. Outputs without one are left
//   out.
// - Slots and buffers are allocated by the constructor; no pass adds any.
class StepExecutor {
 public:
  // stage_buckets[i]: indices into `buckets` of what stages[i] reads. Stages and buckets outlive
  // the executor. Error if the schedule does not fit the memory for reductions (plan_slots()).
  StepExecutor(const std::vector<Stage*>& stages, const std::vector<FlatBucket*>& buckets,
               const std::vector<std::vector<int>>& stage_buckets, ExecutorOptions options);
  // An operation is still on its way if an error unwinds the stack. The memory that it uses goes
  // now, so the world is aborted first.
  ~StepExecutor();
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // One micro-batch, which lies on the host, forward and backward. Collective over all ranks. After
  // the last micro-batch of a step grad() of the buckets is the sum over all of them and over all
  // data-parallel ranks. Returns this rank's loss sum, fp64 [], on the device: to read it at once
  // would make the host wait for the whole pass.
  at::Tensor forward_backward(const MicroBatch& batch, MicroStep step);

  // One micro-batch, which lies on the host, forward alone. Collective over all ranks. Returns the
  // scalars of the last stage: this rank's loss sum, and what the model counts besides.
  std::vector<double> evaluate(const MicroBatch& batch);

  // The optimizer has changed the masters of the trainable buckets: full copies are out of date.
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
  // A reduction on its way. slot: of the gradient ring, freed when its first operation is done; -1:
  // it has none, or none any more.
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
  void enter(Phase phase, int stage);

  ExecutorOptions options_;
  Device device_;
  Stream compute_, gather_, reduce_;
  Event started_;       // on `compute`: the start of a pass
  Event filled_;        // on `compute`: the end of a stage's backward
  Event reduces_done_;  // on `reduce`: the end of a step's reductions so far
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

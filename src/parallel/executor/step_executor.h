#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "parallel/executor/slot_plan.h"
#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

struct ExecutorOptions {
  int prefetch = 1;              // stages gathered ahead, in both directions
  bool recompute = false;        // keep no graph: run each stage's forward again in backward
  bool poison_released = false;  // debug: released parameters read as NaN
};

// Drives a chain of stages at ZeRO-3 by an explicit schedule: no module hooks, so the order of
// gathers, computes and reduces is plain code and the same on every rank by construction.
//
//   turn        fwd 0      fwd 1      ...   fwd+bwd n-1     bwd n-2        ...  bwd 0
//   gather      1          2                (kept)          n-3
//   compute     stage 0    stage 1          stage n-1       stage n-2           stage 0
//   reduce                                                  grads of n-1        grads of 1
//
// Invariants
// - A stage's parameters are usable exactly during the turns of its holds (SlotPlan).
// - Gathers and reduces run on communicators of their own, one of each at most is on its way beside
//   the computation, and both are waited for before their memory is used again.
// - Inputs of a stage are detached leaves; backward runs stage by stage and passes only the outputs
//   that have a gradient.
class StepExecutor {
 public:
  // stage_buckets[i]: indices into `buckets` of what stages[i] reads. All outlive the executor.
  StepExecutor(std::vector<Stage*> stages, std::vector<FlatBucket*> buckets,
               const std::vector<std::vector<int>>& stage_buckets, ExecutorOptions options);
  // If an operation is on its way (an error unwinds), the world is aborted: its memory goes now.
  ~StepExecutor();
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // One micro-batch forward and backward. Gradients are summed over the data-parallel group into
  // the shards' grad, which the first micro-batch of a step overwrites. Returns this rank's loss
  // sum.
  double forward_backward(const MicroBatch& batch, bool first);

  // One micro-batch forward alone.
  double evaluate(const MicroBatch& batch);

  const SlotPlan& plan() const { return train_plan_; }

  // Bytes of ring slots and staging that this executor allocated.
  int64_t buffer_bytes() const;

 private:
  struct StageState {
    TensorList inputs;   // detached leaves
    TensorList outputs;  // with their graph; empty under recompute
  };

  void start_gathers(const SlotPlan& plan, int turn, size_t& next);
  void finish_gathers(const SlotPlan& plan, int turn);
  void release_after(const SlotPlan& plan, int turn);
  void forward_turn(int stage, const MicroBatch& batch);
  void backward_turn(int stage, const MicroBatch& batch, TensorList& grads);
  void begin_grads(int turn, bool first);
  void start_reduces(int turn, bool first);
  void finish_reduces();
  bool is_first_backward(int bucket, int turn) const;

  std::vector<Stage*> stages_;
  std::vector<FlatBucket*> buckets_;
  ExecutorOptions options_;
  SlotPlan train_plan_;
  SlotPlan eval_plan_;
  std::vector<at::Tensor> gather_slots_;
  std::vector<at::Tensor> grad_slots_;
  std::vector<at::Tensor> staging_;  // one for each bucket that a stage reduces at once
  at::Tensor poison_;
  std::vector<StageState> states_;
  std::vector<StageNeeds> needs_;
  std::vector<bool> gathering_;        // by bucket: started and not yet waited for
  std::vector<FlatBucket*> reducing_;  // of the last backward turn, on their way
};

}  // namespace tessera

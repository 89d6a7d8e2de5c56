#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/device/device.h"
#include "parallel/executor/slot_plan.h"
#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"
#include "parallel/memory_ledger.h"

namespace tessera {

struct ExecutorOptions {
  int prefetch = 1;         // stages gathered ahead, in both directions
  int keep_gathered = 1;    // the last stages that stay gathered from forward to backward
  int recompute_every = 0;  // of every k-th stage no graph is kept: its forward runs again in
                            // backward; 0: of none
  bool overlap = true;  // debug: false waits for every operation at once; the numbers are the same
  bool poison_released = false;  // debug: released parameters read as NaN
  // The dtypes in which a stage gets and passes on floating-point values; none: as they come.
  std::optional<at::ScalarType> inputs;
  std::optional<at::ScalarType> outputs;
  // Told everything that happens, in order, a line each: for tests.
  std::function<void(const std::string&)> trace;
};

// What the plan of slots knows of each stage. of_stage[i]: the buckets that stages[i] reads.
std::vector<StageNeeds> stage_needs(const std::vector<Stage*>& stages,
                                    const std::vector<std::vector<int>>& of_stage,
                                    const ExecutorOptions& options);

// The slots of training and of evaluation, which share one ring: the latter's gather_slot_bytes are
// what is allocated.
struct SlotPlans {
  SlotPlan train;
  SlotPlan eval;
};
SlotPlans plan_executor(const std::vector<BucketNeeds>& buckets,
                        const std::vector<StageNeeds>& stages, const ExecutorOptions& options);

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
  StepExecutor(std::vector<Stage*> stages, std::vector<FlatBucket*> buckets,
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

  const SlotPlan& plan() const { return train_plan_; }

  // What this executor and its buckets have allocated.
  MemoryLedger ledger() const;

 private:
  struct StageState {
    TensorList inputs;   // detached leaves
    TensorList outputs;  // with their graph; empty under recompute
  };

  std::vector<at::Tensor> allocate(const std::vector<int64_t>& bytes) const;
  void allocate_buffers();
  MicroBatch begin_pass(const MicroBatch& batch);
  void join_reduces();
  bool recomputes(int stage) const;
  void start_gathers(const SlotPlan& plan, int turn, size_t& next);
  void finish_gathers(const SlotPlan& plan, int turn);
  void release_after(const SlotPlan& plan, int turn);
  TensorList run_stage(int stage, const TensorList& inputs, const MicroBatch& batch);
  void forward_turn(int stage, const MicroBatch& batch);
  void backward_turn(int stage, const MicroBatch& batch, TensorList& grads);
  int grad_slot(int turn, int bucket) const;
  void begin_grads(int turn, MicroStep step);
  void start_reduces(int turn, MicroStep step);
  void advance_reduces();
  void trace(const char* what, const std::string& name);

  std::vector<Stage*> stages_;
  std::vector<FlatBucket*> buckets_;
  ExecutorOptions options_;
  Device device_;
  Stream compute_, gather_, reduce_;
  // `compute` has come to the start of a pass; to the end of a stage's backward.
  Event started_, filled_;
  Event reduces_done_;
  std::vector<Event> gathered_;                           // by bucket: its gather was started
  std::vector<Event> gather_slot_free_, grad_slot_free_;  // by slot: whoever read it last
  SlotPlan train_plan_;
  SlotPlan eval_plan_;
  std::vector<at::Tensor> gather_slots_;
  std::vector<at::Tensor> grad_slots_;
  // For reductions, one for each bucket that a stage reduces at once.
  std::vector<at::Tensor> staging_;
  std::vector<at::Tensor> wire_;
  // Of offloaded gradients, by the parity of the turn: a stage's reduction ends two turns later.
  std::array<std::vector<at::Tensor>, 2> shard_slots_;
  bool offloads_gradients_ = false;
  at::Tensor poison_;
  std::vector<StageState> states_;
  std::vector<StageNeeds> needs_;
  std::vector<bool> gathering_;  // by bucket: started and not yet waited for
  // By bucket: the turns of its first and its last backward in a micro-batch.
  std::vector<int> first_backward_, last_backward_;
  // On their way, in the order in which they were started; slot -1: none to be freed.
  struct Reduce {
    FlatBucket* bucket;
    int slot;
  };
  std::vector<Reduce> reducing_;
};

}  // namespace tessera

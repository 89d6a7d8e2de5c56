#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/process/place.h"
#include "parallel/executor/slot_plan.h"
#include "parallel/executor/stage.h"

namespace tessera {

struct ExecutorOptions {
  int prefetch = 1;         // stages gathered ahead, in both directions
  int keep_gathered = 1;    // the last stages that stay gathered from forward to backward
  int recompute_every = 0;  // every k-th stage keeps no graph: its forward runs again in backward;
                            // 0: none
  bool overlap = true;  // debug: false waits for every operation at once; the numbers are the same
  bool poison_released = false;  // debug: released parameters read as NaN
  // The dtypes to which a stage's floating-point inputs and outputs are converted; none: as they
  // are.
  std::optional<at::ScalarType> inputs;
  std::optional<at::ScalarType> outputs;
  // For tests: called for each gather, wait, compute, reduce and release, in order.
  std::function<void(const std::string&)> trace;
  // Told which pass and stage the rank is in. Null: nobody looks. Outlives the executor.
  Place* place = nullptr;
};

// Whether stage number `stage` of `stages` keeps no graph. Never the last one: its backward follows
// its forward at once, so nothing would be gained.
bool recomputes(const ExecutorOptions& options, int stage, int stages);

// What the plan of slots knows of each stage. of_stage[i]: the buckets that stages[i] reads.
std::vector<StageNeeds> stage_needs(const std::vector<Stage*>& stages,
                                    const std::vector<std::vector<int>>& of_stage,
                                    const ExecutorOptions& options);

// The plans of a training step and of an evaluation. They share one ring of gather slots:
// eval.gather_slot_bytes, which is made from those of `train`, is what is allocated.
struct SlotPlans {
  SlotPlan train;
  SlotPlan eval;
};
SlotPlans plan_executor(const std::vector<BucketNeeds>& buckets,
                        const std::vector<StageNeeds>& stages, const ExecutorOptions& options);

}  // namespace tessera

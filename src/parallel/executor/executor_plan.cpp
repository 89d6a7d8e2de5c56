#include "parallel/executor/executor_plan.h"

namespace tessera {

bool recomputes(const ExecutorOptions& options, int stage, int stages) {
  return options.recompute_every > 0 && stage % options.recompute_every == 0 && stage + 1 < stages;
}

std::vector<StageNeeds> stage_needs(const std::vector<Stage*>& stages,
                                    const std::vector<std::vector<int>>& of_stage,
                                    const ExecutorOptions& options) {
  std::vector<StageNeeds> needs;
  const int count = static_cast<int>(stages.size());
  for (int i = 0; i < count; ++i)
    needs.push_back(
        {of_stage[i], recomputes(options, i, count) || stages[i]->backward_reads_parameters()});
  return needs;
}

SlotPlans plan_executor(const std::vector<BucketNeeds>& buckets,
                        const std::vector<StageNeeds>& stages, const ExecutorOptions& options) {
  const int prefetch = options.overlap ? options.prefetch : 0;
  SlotPlans plans;
  plans.train =
      plan_slots(buckets, stages, {.prefetch = prefetch, .keep_gathered = options.keep_gathered});
  plans.eval = plan_slots(buckets, stages,
                          {.prefetch = prefetch,
                           .training = false,
                           .gather_slot_bytes = plans.train.gather_slot_bytes});
  return plans;
}

}  // namespace tessera

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// kStoppedAfterSave: on request, before the last step; all that was trained is saved.
enum class TrainOutcome { kDone, kStoppedAfterSave };

// For tests: what is called at a point of the loop, on every rank.
struct TrainHooks {
  // The gradients of step `step` are reduced, and nobody has looked at them yet.
  std::function<void(int64_t step, Mesh& mesh, const std::vector<FlatBucket*>& buckets)>
      gradients_ready = nullptr;
  // The validation of step `step` has taken `done` samples and is to go on.
  std::function<void(int64_t step, int64_t done)> validation_batch = nullptr;
};

}  // namespace tessera

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "config/config.h"
#include "parallel/fsdp/flat_bucket.h"
#include "training/loop/stop_signal.h"

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

// Trains as configured, on the ranks of `world` (which train() takes over). `stop_signal` is the
// process's: ranks that are threads share it. Collective.
TrainOutcome train(const Config& config, std::unique_ptr<Communicator> world,
                   const StopSignal& stop_signal, const TrainHooks& hooks = {});

}  // namespace tessera

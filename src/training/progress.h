#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/manifest.h"
#include "optim/loss_scaler.h"
#include "training/batches.h"

namespace tessera {

// Where a run is: with the buckets, all that decides how it goes on.
struct Progress {
  int64_t step = 0;      // steps done, those without an update too; names the learning rate
  int64_t position = 0;  // global sample counter: the next sample's number
  int64_t updates = 0;   // of the weights; Adam's bias correction counts these
  int64_t failures_in_a_row = 0;     // steps that were not finite
  std::vector<SampleRange> skipped;  // samples that a rollback has taken out of the order
  LossScaleState loss_scale;
};

// From and into a manifest: its step, samples and `training`. Manifests of version 1 have made an
// update in each step. UserError for a `training` that is not what record_progress() writes.
Progress progress_of(const Manifest& manifest);
void record_progress(const Progress& progress, Manifest& manifest);

}  // namespace tessera

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "optim/loss_scaler.h"
#include "training/loop/batches.h"

namespace tessera {

// Where a run is. Together with the states in the buckets it decides all that follows.
struct Progress {
  int64_t step = 0;      // steps done, those without an update too; names the learning rate
  int64_t position = 0;  // global sample counter: the next sample's number
  int64_t updates = 0;   // of the weights; Adam's bias correction counts these
  int64_t tokens = 0;    // SampleSource::positions_per_sample() of every sample trained on
  int64_t rows = 0;      // samples trained on: the next one's place, which names its dropout masks
  int64_t failures_in_a_row = 0;  // steps that were not finite
  // The furthest step that was not finite. Only a good step beyond it ends the row: after a
  // rollback the steps before it are good again.
  int64_t last_failed_step = 0;
  int64_t rollbacks = 0;                     // of the whole run
  std::vector<SampleRange> skipped;          // samples that a rollback has taken out of the order
  std::optional<LossScaleState> loss_scale;  // nullopt: none was in use
};

// Read the progress from a manifest's step, samples, tokens and `training`, and write it there.
// What older programs did not write is derived from the step and the configuration that they saved;
// programs of format version 1 made an update in every step. UserError for a `training` that is not
// what record_progress() writes.
Progress progress_of(const Manifest& manifest);
void record_progress(const Progress& progress, Manifest& manifest);

// Ranges of samples as JSON: [[begin, end], ...]. ranges_of() throws a UserError that begins with
// `where` for JSON that is not of this form.
nlohmann::json to_json(const std::vector<SampleRange>& ranges);
std::vector<SampleRange> ranges_of(const nlohmann::json& ranges, const std::string& where);

}  // namespace tessera

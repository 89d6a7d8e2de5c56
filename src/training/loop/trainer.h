#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process/place.h"
#include "checkpoint/store/manager.h"
#include "checkpoint/store/saver.h"
#include "config/config.h"
#include "data/sample_source.h"
#include "optim/loss_scaler.h"
#include "training/engine/engine.h"
#include "training/loop/batches.h"
#include "training/loop/fault_injection.h"
#include "training/loop/hooks.h"
#include "training/loop/owed_validation.h"
#include "training/loop/progress.h"
#include "training/loop/stop_signal.h"
#include "training/loop/timetable.h"
#include "training/output/reporter.h"
#include "training/output/start_record.h"

namespace tessera {

// What the loop drives; all outlive the trainer.
struct TrainerParts {
  const Config& config;
  Engine& engine;
  const SampleSource& train_data;
  const SampleSource* valid_data;  // null: no validation
  CheckpointManager& checkpoints;
  CheckpointSaver& saver;
  const Manifest& manifest;  // what every checkpoint of this run says, without its progress
  Reporter& reporter;
  OwedValidation& owed;  // of the step that `progress` stands at
  const StopSignal& stop_signal;
  FaultInjection& faults;
  const TrainHooks& hooks;
  Place& place;         // told where this rank is
  StartRecord& record;  // told of each step and checkpoint
};

// The training loop and nothing else:
//
//   for each step: micro-batches forward and backward -> one small sum over all ranks (loss,
//   squared gradient norms, wish to stop) -> finite? clip and update : skip, roll back or stop
//   -> metrics -> [checkpoint] -> [validation] -> [retirement of old checkpoints] -> [stop]
//
// A checkpoint is written beside the steps that follow (CheckpointSaver), except where the run ends
// with it. That a save has failed is agreed in the sum of the next step.
//
// Ranks agree on a request to stop in the sum of each step, between the batches of a validation and
// after a save. A validation that a stop breaks off is owed, and is the first thing that the next
// start makes up; nothing else is ever left half done.
//
// The state is the buckets, the progress and the loss scale. Whether a step is finite follows from
// sums that all ranks share, so they all decide alike. All methods are collective.
class Trainer {
 public:
  // `progress`: that of the states in the engine's buckets.
  Trainer(TrainerParts parts, Progress progress);

  // Makes up a validation that is owed; then runs to the configured number of steps, or to a stop
  // on request, with a checkpoint at the end. If a stop is asked for when the last step is done and
  // saved, the outcome is kDone all the same.
  TrainOutcome run();

 private:
  // Sums over all ranks, with the loss scale divided out.
  struct StepSums {
    double loss = 0.0;
    double grad_norm = 0.0;
    std::vector<double> bucket_squares;
    bool finite() const;
  };

  // The step's metrics; nullopt if it led to a rollback.
  std::optional<StepMetrics> train_step();
  at::Tensor forward_backward(const std::vector<int64_t>& samples);  // fp64 [1]
  StepSums sum_over_ranks(const at::Tensor& loss);
  void update(const StepMetrics& metrics);
  // What to do after a step that is not finite. Throws where training cannot go on.
  enum class Verdict { kSkipped, kRolledBack };
  Verdict not_finite(const StepSums& sums, const GlobalBatch& batch);
  std::shared_ptr<const StoredCheckpoint> load_newest(const std::string& what);
  void roll_back(const GlobalBatch& batch, const std::string& what, const std::string& parameter);
  void measure(StepMetrics& metrics, double seconds);
  // Makes the validation of the step that is done. If a request to stop broke it off, it is still
  // owed afterwards.
  void validate();
  // Starts the save of the step that is done, after the end of the save before.
  void save();
  // Waits for the saves that were started. Error if the last of them failed and
  // checkpoint.on_error is stop.
  void settle_saves();
  // Reports the saves that are done.
  void report_saves();
  // A save that failed, told by the Error that ends the run because of it.
  std::string unsaved_text() const;
  TrainOutcome outcome();
  std::vector<std::pair<std::string, double>> stage_norms(const StepSums& sums) const;

  TrainerParts parts_;
  Communicator& world_;
  const Timetable times_;
  Sampler sampler_;
  Progress progress_;
  LossScaler scaler_;
  bool stop_ = false;                   // agreed by all ranks
  bool save_failed_ = false;            // the last save that is done; agreed by all ranks
  double stall_ = 0.0;                  // seconds that the save under way has kept the loop
  int64_t saved_step_;                  // the newest that is committed; 0: none
  std::optional<SaveMetrics> unsaved_;  // the last save, if it failed
  TpTime tp_time_;                      // of the step that is done
};

}  // namespace tessera

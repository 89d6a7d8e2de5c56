#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manager.h"
#include "checkpoint/reader.h"
#include "config/config.h"
#include "data/indexed_dataset.h"
#include "data/sampler.h"
#include "parallel/executor/step_executor.h"
#include "training/batches.h"
#include "training/console.h"
#include "training/memory_report.h"
#include "training/metrics.h"
#include "training/stop_signal.h"
#include "training/train.h"

namespace tessera {

// The parts of a run that the loop drives; all outlive the trainer.
struct TrainerParts {
  const Config& config;
  Mesh& mesh;
  const std::vector<FlatBucket*>& buckets;
  StepExecutor& executor;
  const TokenStream& train_data;
  const TokenStream* valid_data;  // null: no validation
  CheckpointManager& checkpoints;
  const Manifest& manifest;  // what every checkpoint of this run says, without its position
  Console& console;
  MetricsFile* metrics;  // rank 0 alone
  const StopSignal& stop_signal;
  MemoryReport& memory;
  MomentStore* moments;  // null: they lie in ordinary memory
};

// The training loop and nothing else:
//
//   for each step: micro-batches forward and backward -> one small sum over all ranks (loss,
//   squared gradient norm, wish to stop) -> clip -> AdamW -> metrics -> [validation] ->
//   [checkpoint] -> [stop]
//
// The state is the buckets and one number, the step: the sample position and the learning rate
// follow from it. All methods are collective.
class Trainer {
 public:
  // `step`: updates that the buckets have seen.
  Trainer(TrainerParts parts, int64_t step);

  // Runs to the configured number of steps, or to a stop on request, with a checkpoint at the end.
  TrainOutcome run();

 private:
  StepMetrics train_step();
  EvalMetrics evaluate();
  void save();
  BatchShape batch_shape() const;

  TrainerParts parts_;
  Sampler sampler_;
  int64_t step_;
  bool stop_agreed_ = false;
  double seconds_per_step_ = 0.0;  // smoothed, for the time left
};

}  // namespace tessera

#include "training/loop/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/error_kinds.h"
#include "checkpoint/store/reader.h"
#include "optim/grad_norm.h"
#include "optim/lr_schedule.h"
#include "parallel/comm/core/file_work.h"
#include "training/loop/evaluation.h"
#include "training/loop/rollback_record.h"
#include "training/loop/stop_agreement.h"

namespace tessera {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds that a save may wait for the one before without a word.
constexpr double kNotableWait = 0.5;

// A save that failed because another start has the folder now is no failure to live with.
void rethrow_if_replaced(const std::exception_ptr& failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const ReplacedError&) {
    throw;
  } catch (const std::exception&) {
  }
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

bool Trainer::StepSums::finite() const {
  return std::isfinite(loss) && std::isfinite(grad_norm);
}

Trainer::Trainer(TrainerParts parts, Progress progress)
    : parts_(parts),
      world_(parts.engine.mesh().world()),
      times_(parts.config, parts.valid_data != nullptr),
      sampler_(parts.train_data.num_samples(), parts.config.run.seed),
      progress_(std::move(progress)),
      scaler_(parts.config.precision.loss_scale, is_fp16(parts.config.precision)),
      saved_step_(progress_.step) {
  if (progress_.loss_scale) scaler_.restore(*progress_.loss_scale);
}

TrainOutcome Trainer::run() {
  parts_.reporter.begin();
  stop_ = stop_agreed(world_, parts_.stop_signal);
  if (parts_.owed.owed() && !stop_) {
    validate();
    if (!parts_.owed.owed()) parts_.saver.retire_old();
  }
  while (!times_.is_last(progress_.step) && !stop_) {
    const std::optional<StepMetrics> metrics = train_step();
    if (save_failed_ && parts_.config.checkpoint.on_error == OnSaveError::kStop) settle_saves();
    report_saves();
    if (!metrics) continue;  // rolled back, and that is recorded: a stop needs no save
    const int64_t step = progress_.step;
    parts_.record.set_step(step);
    parts_.reporter.step(*metrics, tp_time_, times_.logs(step));
    if (unsaved_ && times_.logs(step)) parts_.reporter.warn(unsaved_text());
    const bool save_due = stop_ || times_.stops(step) || times_.saves(step);
    parts_.owed.owe(times_.validates(step));
    if (save_due) save();
    if (parts_.owed.owed() && !stop_) validate();
    if (stop_ && !save_due) save();
    if (save_due && !parts_.owed.owed()) parts_.saver.retire_old();
    stop_ = stop_ || times_.stops(step);
  }
  parts_.place.enter(Phase::kClose);
  settle_saves();
  if (unsaved_) fail_on_all_ranks("train", "{}", unsaved_text());
  parts_.reporter.end();
  return outcome();
}

TrainOutcome Trainer::outcome() {
  if (!times_.is_last(progress_.step)) {
    parts_.reporter.line(fmt::format(
        "stopped on request after step {} of {}, {}; start the same command to go on",
        progress_.step, times_.last_step(), progress_.step > 0 ? "saved" : "nothing to save yet"));
    return TrainOutcome::kStoppedAfterSave;
  }
  if (parts_.owed.owed())
    parts_.reporter.line(
        fmt::format("stopped on request in the validation of step {}; every step is saved; start "
                    "the same command to make it up",
                    progress_.step));
  return TrainOutcome::kDone;
}

void Trainer::validate() {
  const int64_t step = progress_.step;
  parts_.place.enter(Phase::kValidate, step);
  const auto eval =
      evaluate(parts_.config, parts_.engine, *parts_.valid_data, step, [&](int64_t done) {
        parts_.place.advance();
        parts_.faults.reach(FaultMoment::kValidation, step);
        if (parts_.hooks.validation_batch) parts_.hooks.validation_batch(step, done);
        stop_ = stop_agreed(world_, parts_.stop_signal);
        return stop_;
      });
  if (!eval) return;
  parts_.checkpoints.record_loss(step, eval->loss);  // before the line: it ends what is owed
  if (parts_.reporter.write(*eval))
    parts_.owed.clear();  // the line is on the disk
  else
    parts_.owed.owe(false);  // a note that is written stays: the next start looks for the line
  meet_after_file_work(world_);
  parts_.reporter.say(*eval);
}

std::optional<StepMetrics> Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  parts_.engine.take_tp_time();  // what a validation has added
  const auto& config = parts_.config;
  parts_.place.enter(Phase::kData, progress_.step + 1);
  parts_.faults.reach(FaultMoment::kCollective, progress_.step + 1);
  parts_.faults.reach(FaultMoment::kData, progress_.step + 1);
  const GlobalBatch batch = next_batch(sampler_, progress_.position,
                                       config.training.global_batch_size, progress_.skipped);
  const at::Tensor own_loss = forward_backward(batch.samples);
  if (parts_.hooks.gradients_ready)
    parts_.hooks.gradients_ready(progress_.step + 1, parts_.engine.mesh(), parts_.engine.buckets());
  if (times_.compares_replicas(progress_.step + 1))
    parts_.engine.compare_replicas(progress_.step + 1);
  const StepSums sums = sum_over_ranks(own_loss);
  parts_.place.enter(Phase::kUpdate);

  StepMetrics metrics;
  metrics.step = progress_.step + 1;
  metrics.loss = sums.loss;
  metrics.grad_norm = sums.grad_norm;
  metrics.lr =
      learning_rate(config.schedule, config.optimizer.lr, config.schedule.steps, metrics.step);
  metrics.loss_scale = scaler_.enabled() ? scaler_.scale() : 0.0;
  if (sums.finite()) {
    update(metrics);
  } else if (not_finite(sums, batch) == Verdict::kRolledBack) {
    return std::nullopt;
  } else {
    metrics.updated = false;
  }
  ++progress_.step;
  progress_.position = batch.counters.end;
  const auto rows = static_cast<int64_t>(batch.samples.size());
  progress_.rows += rows;
  progress_.tokens += rows * parts_.train_data.positions_per_sample();

  if (config.training.log_stage_norms) metrics.stage_norms = stage_norms(sums);
  if (config.training.log_samples) metrics.samples = batch.samples;
  parts_.place.enter(Phase::kSum);
  measure(metrics, seconds_since(start));
  parts_.place.enter(Phase::kUpdate);  // whose line is written next
  return metrics;
}

// This rank's part of the loss, times the loss scale; still on the device.
at::Tensor Trainer::forward_backward(const std::vector<int64_t>& samples) {
  BatchShape shape = batch_shape(parts_.config, parts_.engine.mesh());
  shape.loss_scale = scaler_.scale();
  const auto batch_size = static_cast<int64_t>(samples.size());
  const int64_t micro_batches = num_micro_batches(batch_size, shape.micro_batch_size, shape.dp);
  at::Tensor loss = parts_.engine.device().zeros({1}, at::kDouble);
  for (int64_t i = 0; i < micro_batches; ++i) {
    parts_.place.enter(Phase::kData);
    const MicroBatch batch = load_micro_batch(parts_.train_data, samples, shape, i, progress_.rows);
    loss +=
        parts_.engine.forward_backward(batch, {.first = i == 0, .last = i + 1 == micro_batches});
    parts_.faults.reach(FaultMoment::kCompute, progress_.step + 1);
  }
  parts_.place.enter(Phase::kSum);
  parts_.engine.complete_gradients();
  return loss;
}

// One small sum over all ranks, and the one place where a step waits for a GPU. Ranks of a tp group
// hold the same loss, so one of them counts.
Trainer::StepSums Trainer::sum_over_ranks(const at::Tensor& loss) {
  const at::Tensor norms = parts_.engine.squared_grad_norms();
  const at::Tensor read = at::cat({norms.to(loss.device()), loss}).cpu();
  const auto* values = read.const_data_ptr<double>();
  std::vector<double> local(values, values + read.numel());
  if (parts_.engine.mesh().tp_rank() != 0) local.back() = 0.0;
  local.push_back(parts_.stop_signal.requested() ? 1.0 : 0.0);
  local.push_back(parts_.saver.failed() ? 1.0 : 0.0);
  at::Tensor sums = at::tensor(local, at::kDouble);
  world_.all_reduce(sums, ReduceOp::kSum).wait();

  const auto* sum = sums.const_data_ptr<double>();
  const size_t buckets = parts_.engine.buckets().size();
  const double scale = scaler_.scale();
  StepSums result;
  double squares = 0.0;
  for (size_t i = 0; i < buckets; ++i) {
    result.bucket_squares.push_back(sum[i] / (scale * scale));
    squares += result.bucket_squares.back();
  }
  result.grad_norm = std::sqrt(squares);
  result.loss = sum[buckets] / scale;
  stop_ = sum[buckets + 1] > 0.0;
  save_failed_ = sum[buckets + 2] > 0.0;
  return result;
}

void Trainer::update(const StepMetrics& metrics) {
  const auto& config = parts_.config;
  Update update{metrics.lr, ++progress_.updates, {}};
  update.grad.scale =
      clip_factor(metrics.grad_norm, config.training.clip_grad_norm) / scaler_.scale();
  if (config.training.clip_grad_value > 0.0) update.grad.limit = config.training.clip_grad_value;
  parts_.engine.update(update);
  if (metrics.step > progress_.last_failed_step) progress_.failures_in_a_row = 0;
  if (scaler_.step_was_good())
    parts_.reporter.line(fmt::format("step {}: loss scale {}", metrics.step, scaler_.scale()));
}

Trainer::Verdict Trainer::not_finite(const StepSums& sums, const GlobalBatch& batch) {
  const int64_t step = progress_.step + 1;
  const auto& training = parts_.config.training;
  if (std::isfinite(sums.loss)) {  // the gradient alone: the loss scale may be too large
    const bool explained = scaler_.explains_overflow();
    const double before = scaler_.scale();
    scaler_.step_overflowed();
    if (explained) {
      parts_.reporter.line(
          fmt::format("step {}: a gradient overflowed at loss scale {}, so no update was made; "
                      "loss scale {}",
                      step, before, scaler_.scale()));
      return Verdict::kSkipped;
    }
  }

  const auto parameter = parts_.engine.first_nonfinite_gradient();
  const std::string what = fmt::format(
      "step {}: loss {}, gradient norm {}: not finite, so no update was made; first bad gradient: "
      "{}; samples [{}]",
      step, sums.loss, sums.grad_norm, parameter.value_or("none"), fmt::join(batch.samples, ", "));
  if (training.on_nonfinite == OnNonfinite::kStop)
    fail_on_all_ranks(
        "train",
        "{}. Earlier checkpoints are as they were; go on from one with a lower optimizer.lr, or "
        "with training.on_nonfinite: skip or rollback",
        what);
  progress_.last_failed_step = std::max(progress_.last_failed_step, step);
  if (++progress_.failures_in_a_row > training.max_skips)
    fail_on_all_ranks("train", "{}. That is number {} in a row, and training.max_skips is {}", what,
                      progress_.failures_in_a_row, training.max_skips);
  if (training.on_nonfinite == OnNonfinite::kRollback) {
    roll_back(batch, what, parameter.value_or(""));
    return Verdict::kRolledBack;
  }
  parts_.reporter.warn(what);
  return Verdict::kSkipped;
}

// Loads every state from the newest checkpoint of this run whose data are whole.
std::shared_ptr<const StoredCheckpoint> Trainer::load_newest(const std::string& what) {
  while (true) {
    auto checkpoint = parts_.checkpoints.find_latest();
    if (!checkpoint)
      fail_on_all_ranks(
          "train",
          "{}. training.on_nonfinite is rollback, but this run has no checkpoint yet to go back "
          "to; set checkpoint.every so that there is one, or on_nonfinite: skip",
          what);
    parts_.place.enter(Phase::kLoad);
    CheckpointReader reader(checkpoint);
    reader.blocks().set_each_part([this] { parts_.place.advance(); });
    if (parts_.checkpoints.load_or_set_aside(
            *checkpoint, [&] { parts_.engine.load(parts_.manifest.states, reader); }))
      return checkpoint;
  }
}

// Goes back to the newest checkpoint, and takes the batch's samples out of the order. Checkpoints
// hold the list of such samples from the next one on; until then rollback.json does.
void Trainer::roll_back(const GlobalBatch& batch, const std::string& what,
                        const std::string& parameter) {
  settle_saves();
  const auto checkpoint = load_newest(what);
  const std::filesystem::path& folder = checkpoint->dir();
  Progress back = progress_of(checkpoint->manifest());
  back.failures_in_a_row = progress_.failures_in_a_row;
  back.last_failed_step = progress_.last_failed_step;
  back.rollbacks = progress_.rollbacks + 1;
  back.skipped = progress_.skipped;  // those of the checkpoint are among them
  add_range(back.skipped, batch.counters);
  write_rollback_record(
      folder.parent_path(), back,
      order_of(parts_.manifest.seed, parts_.manifest.data, parts_.manifest.config), world_);
  parts_.checkpoints.forget_losses_after(back.step);
  parts_.reporter.warn(
      fmt::format("{}. Going back to {} and on without these samples", what, folder.string()));
  parts_.reporter.rolled_back(
      {progress_.step + 1, back.step, batch.counters.begin, batch.counters.end, parameter});
  progress_ = std::move(back);
  saved_step_ = progress_.step;
  parts_.record.set_step(progress_.step);
  if (progress_.loss_scale) scaler_.restore(*progress_.loss_scale);
  meet_after_file_work(world_);
}

void Trainer::measure(StepMetrics& metrics, double seconds) {
  at::Tensor peak =
      at::full({1}, static_cast<double>(peak_bytes(parts_.engine.device())), at::kDouble);
  world_.all_reduce(peak, ReduceOp::kMax).wait();
  metrics.tokens = progress_.tokens;
  metrics.step_ms = 1e3 * seconds;
  metrics.tokens_per_s = static_cast<double>(parts_.config.training.global_batch_size *
                                             parts_.train_data.positions_per_sample()) /
                         seconds;
  metrics.peak_memory = static_cast<int64_t>(peak.item<double>());
  tp_time_ = parts_.engine.take_tp_time();
  metrics.tp_ms = 1e3 * tp_time_.operations;
  metrics.tp_hidden = tp_time_.hidden();
}

void Trainer::save() {
  const int64_t step = progress_.step;
  parts_.place.enter(Phase::kSave, step);
  progress_.loss_scale = scaler_.enabled() ? std::optional(scaler_.state()) : std::nullopt;
  Manifest manifest = parts_.manifest;
  record_progress(progress_, manifest);
  const bool root = world_.rank() == 0;
  const StopSignal::Uninterrupted whole(parts_.stop_signal, root);
  const auto start = std::chrono::steady_clock::now();
  settle_saves();
  const double waited = seconds_since(start);
  if (waited > kNotableWait)
    parts_.reporter.line(fmt::format(
        "the save of step {} waited {:.2f} s for the save before: saves take longer than the steps "
        "between them (checkpoint.every)",
        step, waited));
  parts_.faults.reach(FaultMoment::kSave, step);
  // A line that is missing, or a validation that nobody knows of, could not be made up any more
  // once the step is there.
  parts_.saver.save(std::move(manifest), parts_.engine.pieces(parts_.manifest.states),
                    [this, step] {
                      parts_.reporter.sync();
                      parts_.owed.note(step);
                    });
  parts_.engine.release_moments();
  const bool waits =
      stop_ || times_.is_last(step) || times_.stops(step) || !parts_.config.checkpoint.async;
  if (waits) parts_.saver.wait();
  stall_ = seconds_since(start);
  if (waits) settle_saves();
  // A request to stop that came during the save is met by this save: no further step is needed.
  const FileWork file_work;
  stop_ = stop_ || stop_agreed(world_, parts_.stop_signal);
  if (!stop_) return;
  settle_saves();
  parts_.stop_signal.ignore_from_now(root);
}

void Trainer::settle_saves() {
  parts_.saver.wait();
  report_saves();
  if (unsaved_ && parts_.config.checkpoint.on_error == OnSaveError::kStop)
    fail_on_all_ranks("train",
                      "{}. With checkpoint.on_error: warn a run goes on until a save succeeds",
                      unsaved_text());
}

void Trainer::report_saves() {
  while (const auto outcome = parts_.saver.take_outcome()) {
    rethrow_if_replaced(outcome->failure);
    SaveMetrics save{outcome->step, 1e3 * stall_, 1e3 * outcome->seconds, {}};
    if (outcome->failure) save.failure = text_of(outcome->failure);
    parts_.reporter.save(save, outcome->folder);
    if (!outcome->failure) parts_.record.set_saved(saved_step_ = outcome->step);
    unsaved_ = outcome->failure ? std::optional(std::move(save)) : std::nullopt;
  }
}

std::string Trainer::unsaved_text() const {
  const std::string newest = saved_step_ > 0
                                 ? fmt::format("the newest checkpoint is of step {}", saved_step_)
                                 : "there is no checkpoint yet";
  return fmt::format("step {} is not saved; {}: {}", unsaved_->step, newest, unsaved_->failure);
}

// Gradient norms by stage, each over the stage's buckets. These follow each other, except a bucket
// that another stage lists first (a tied weight), so stages are looked up by name.
std::vector<std::pair<std::string, double>> Trainer::stage_norms(const StepSums& sums) const {
  std::vector<std::pair<std::string, double>> norms;
  for (size_t i = 0; i < sums.bucket_squares.size(); ++i) {
    const std::string& stage = parts_.engine.bucket_stages()[i];
    const auto known = std::find_if(norms.begin(), norms.end(),
                                    [&](const auto& norm) { return norm.first == stage; });
    auto& norm = known == norms.end() ? norms.emplace_back(stage, 0.0) : *known;
    norm.second += sums.bucket_squares[i];
  }
  for (auto& [stage, norm] : norms) norm = std::sqrt(norm);
  return norms;
}

}  // namespace tessera

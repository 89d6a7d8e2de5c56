#include "training/loop/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "config/keys/with_keys.h"
#include "models/scores.h"
#include "optim/grad_norm.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "parallel/comm/core/file_work.h"
#include "parallel/fsdp/compare_replicas.h"
#include "training/engine/nonfinite.h"
#include "training/engine/train_state.h"
#include "training/loop/rollback_record.h"

namespace tessera {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool is_due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

std::string eval_text(const EvalMetrics& eval, DataKind kind) {
  std::string text = fmt::format("validation at step {}: loss {:.4f}", eval.step, eval.loss);
  if (eval.accuracy) text += fmt::format(", accuracy {:.2f} %", 1e2 * *eval.accuracy);
  if (eval.exact_match) text += fmt::format(", exact match {:.2f} %", 1e2 * *eval.exact_match);
  if (kind == DataKind::kImages) return text + fmt::format(" over {} images", eval.samples);
  text += fmt::format(" over {} tokens", eval.targets);
  if (kind == DataKind::kPairs) text += fmt::format(" of {} pairs", eval.samples);
  return text;
}

}  // namespace

bool Trainer::StepSums::finite() const {
  return std::isfinite(loss) && std::isfinite(grad_norm);
}

Trainer::Trainer(TrainerParts parts, Progress progress)
    : parts_(parts),
      sampler_(parts.train_data.num_samples(), parts.config.run.seed),
      progress_(std::move(progress)),
      scaler_(parts.config.precision.loss_scale, is_fp16(parts.config.precision)),
      owed_(parts.validation_owed) {
  if (progress_.loss_scale) scaler_.restore(*progress_.loss_scale);
}

TrainOutcome Trainer::run() {
  const auto& config = parts_.config;
  const int64_t total = config.training.steps;
  parts_.console.header();
  stop_ = stop_agreed();
  if (owed_ && !stop_) {
    validate();
    if (!owed_) parts_.checkpoints.retire_old();
  }
  while (progress_.step < total && !stop_) {
    const std::optional<StepMetrics> metrics = train_step();
    if (!metrics) continue;  // rolled back, and that is recorded: a wish to stop is heard at once
    const int64_t step = progress_.step;
    parts_.memory.after_step();
    if (parts_.metrics) parts_.metrics->write(*metrics);
    times_.add(metrics->step_ms, metrics->tokens_per_s);
    if (is_due(step, config.training.log_every))
      parts_.console.progress(*metrics, std::exchange(times_, {}), total,
                              seconds_per_step_ * static_cast<double>(total - step));
    const bool stop_here = config.training.stop_after == step;
    const bool save_due =
        stop_ || stop_here || step == total || is_due(step, config.checkpoint.every);
    owed_ = validation_due();
    if (save_due) save();
    if (owed_ && !stop_) validate();
    if (stop_ && !save_due) save();
    if (save_due && !owed_) parts_.checkpoints.retire_old();
    stop_ = stop_ || stop_here;
  }
  say_tp_time();
  if (progress_.step < total) {
    parts_.console.line(
        fmt::format("stopped on request after step {} of {}, {}; start the same command to go on",
                    progress_.step, total, progress_.step > 0 ? "saved" : "nothing to save yet"));
    return TrainOutcome::kStoppedAfterSave;
  }
  if (owed_)
    parts_.console.line(
        fmt::format("stopped on request in the validation of step {}; every step is saved; start "
                    "the same command to make it up",
                    progress_.step));
  return TrainOutcome::kDone;
}

bool Trainer::validation_due() const {
  const int64_t every = parts_.config.eval.every;
  const bool last = progress_.step == parts_.config.training.steps;
  return parts_.valid_data && every > 0 && (last || is_due(progress_.step, every));
}

void Trainer::validate() {
  const std::optional<EvalMetrics> eval = evaluate();
  if (!eval) return;
  if (parts_.metrics) {
    parts_.metrics->write(*eval);
    parts_.metrics->sync();  // before the note goes that it is owed
    parts_.owed->clear();
  }
  meet_after_file_work(parts_.mesh.world());
  owed_ = false;
  parts_.console.line(eval_text(*eval, parts_.config.data.kind));
}

bool Trainer::stop_agreed() {
  at::Tensor wishes = at::full({1}, parts_.stop_signal.requested() ? 1.0 : 0.0, at::kDouble);
  parts_.mesh.world().all_reduce(wishes, ReduceOp::kSum).wait();
  return wishes.item<double>() > 0.0;
}

std::optional<StepMetrics> Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  parts_.tp_time = {};
  const auto& config = parts_.config;
  const GlobalBatch batch = next_batch(sampler_, progress_.position,
                                       config.training.global_batch_size, progress_.skipped);
  const at::Tensor own_loss = forward_backward(batch.samples);
  if (parts_.hooks.gradients_ready)
    parts_.hooks.gradients_ready(progress_.step + 1, parts_.mesh, parts_.buckets);
  if (is_due(progress_.step + 1, config.debug.compare_replicas_every))
    with_keys<ReplicasDiffer>("debug.compare_replicas_every", [&] {
      compare_replicas(parts_.buckets, parts_.mesh, progress_.step + 1);
    });
  const StepSums sums = sum_over_ranks(own_loss);

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
  measure(metrics, seconds_since(start));
  return metrics;
}

// This rank's part of the loss, times the loss scale; still on the device.
at::Tensor Trainer::forward_backward(const std::vector<int64_t>& samples) {
  BatchShape shape = batch_shape();
  shape.loss_scale = scaler_.scale();
  const auto batch_size = static_cast<int64_t>(samples.size());
  const int64_t micro_batches = num_micro_batches(batch_size, shape.micro_batch_size, shape.dp);
  at::Tensor loss = parts_.mesh.device().zeros({1}, at::kDouble);
  for (int64_t i = 0; i < micro_batches; ++i)
    loss += parts_.executor.forward_backward(
        load_micro_batch(parts_.train_data, samples, shape, i, progress_.rows),
        {.first = i == 0, .last = i + 1 == micro_batches});
  parts_.tp_gradients.run();
  return loss;
}

// One small sum over all ranks, and the one place where a step waits for a GPU. Ranks of a tp group
// hold the same loss, so one of them counts.
Trainer::StepSums Trainer::sum_over_ranks(const at::Tensor& loss) {
  const at::Tensor norms = local_squared_grad_norms(parts_.buckets, parts_.mesh);
  const at::Tensor read = at::cat({norms.to(loss.device()), loss}).cpu();
  const auto* values = read.const_data_ptr<double>();
  std::vector<double> local(values, values + read.numel());
  if (parts_.mesh.tp_rank() != 0) local.back() = 0.0;
  local.push_back(parts_.stop_signal.requested() ? 1.0 : 0.0);
  at::Tensor sums = at::tensor(local, at::kDouble);
  parts_.mesh.world().all_reduce(sums, ReduceOp::kSum).wait();

  const auto* sum = sums.const_data_ptr<double>();
  const size_t buckets = parts_.buckets.size();
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
  return result;
}

void Trainer::update(const StepMetrics& metrics) {
  const auto& config = parts_.config;
  Update update{metrics.lr, ++progress_.updates, {}};
  update.grad.scale =
      clip_factor(metrics.grad_norm, config.training.clip_grad_norm) / scaler_.scale();
  if (config.training.clip_grad_value > 0.0) update.grad.limit = config.training.clip_grad_value;
  apply_update(parts_.buckets, config.optimizer, update);
  parts_.executor.parameters_changed();
  if (metrics.step > progress_.last_failed_step) progress_.failures_in_a_row = 0;
  if (scaler_.step_was_good())
    parts_.console.line(fmt::format("step {}: loss scale {}", metrics.step, scaler_.scale()));
}

Trainer::Verdict Trainer::not_finite(const StepSums& sums, const GlobalBatch& batch) {
  const int64_t step = progress_.step + 1;
  const auto& training = parts_.config.training;
  if (std::isfinite(sums.loss)) {  // the gradient alone: the loss scale may be too large
    const bool explained = scaler_.explains_overflow();
    const double before = scaler_.scale();
    scaler_.step_overflowed();
    if (explained) {
      parts_.console.line(
          fmt::format("step {}: a gradient overflowed at loss scale {}, so no update was made; "
                      "loss scale {}",
                      step, before, scaler_.scale()));
      return Verdict::kSkipped;
    }
  }

  const auto parameter =
      first_nonfinite_gradient(parts_.buckets, parts_.manifest.tensors, parts_.mesh);
  const std::string what = fmt::format(
      "step {}: loss {}, gradient norm {}: not finite, so no update was made; first bad gradient: "
      "{}; samples [{}]",
      step, sums.loss, sums.grad_norm, parameter.value_or("none"), fmt::join(batch.samples, ", "));
  if (training.on_nonfinite == OnNonfinite::kStop)
    fail("train",
         "{}. Earlier checkpoints are as they were; go on from one with a lower optimizer.lr, or "
         "with training.on_nonfinite: skip or rollback",
         what);
  progress_.last_failed_step = std::max(progress_.last_failed_step, step);
  if (++progress_.failures_in_a_row > training.max_skips)
    fail("train", "{}. That is number {} in a row, and training.max_skips is {}", what,
         progress_.failures_in_a_row, training.max_skips);
  if (training.on_nonfinite == OnNonfinite::kRollback) {
    roll_back(batch, what, parameter.value_or(""));
    return Verdict::kRolledBack;
  }
  parts_.console.warn(what);
  return Verdict::kSkipped;
}

// Takes every state from the newest checkpoint of this run and the batch's samples out of the
// order. Its list of them is saved from the next checkpoint on.
void Trainer::roll_back(const GlobalBatch& batch, const std::string& what,
                        const std::string& parameter) {
  const auto folder = parts_.checkpoints.find_latest();
  if (!folder)
    fail("train",
         "{}. training.on_nonfinite is rollback, but this run has no checkpoint yet to go back to; "
         "set checkpoint.every so that there is one, or on_nonfinite: skip",
         what);
  CheckpointReader reader(*folder);
  load_states(parts_.buckets, parts_.manifest.states, reader);
  if (parts_.moments) parts_.moments->release();
  parts_.executor.parameters_changed();

  Progress back = progress_of(reader.manifest());
  back.failures_in_a_row = progress_.failures_in_a_row;
  back.last_failed_step = progress_.last_failed_step;
  back.rollbacks = progress_.rollbacks + 1;
  back.skipped = progress_.skipped;  // those of the checkpoint are among them
  add_range(back.skipped, batch.counters);
  write_rollback_record(
      folder->parent_path(), back,
      order_of(parts_.manifest.seed, parts_.manifest.data, parts_.manifest.config),
      parts_.mesh.world());
  parts_.console.warn(
      fmt::format("{}. Going back to {} and on without these samples", what, folder->string()));
  if (parts_.metrics)
    parts_.metrics->write(RollbackEvent{progress_.step + 1, back.step, batch.counters.begin,
                                        batch.counters.end, parameter});
  progress_ = std::move(back);
  if (progress_.loss_scale) scaler_.restore(*progress_.loss_scale);
  meet_after_file_work(parts_.mesh.world());
}

void Trainer::measure(StepMetrics& metrics, double seconds) {
  at::Tensor peak =
      at::full({1}, static_cast<double>(peak_bytes(parts_.mesh.device())), at::kDouble);
  parts_.mesh.world().all_reduce(peak, ReduceOp::kMax).wait();
  seconds_per_step_ = seconds_per_step_ == 0.0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
  metrics.tokens = progress_.tokens;
  metrics.step_ms = 1e3 * seconds;
  metrics.tokens_per_s = static_cast<double>(parts_.config.training.global_batch_size *
                                             parts_.train_data.positions_per_sample()) /
                         seconds;
  metrics.peak_memory = static_cast<int64_t>(peak.item<double>());
  const TpTime& time = parts_.tp_time;
  metrics.tp_ms = 1e3 * time.operations;
  metrics.tp_hidden = time.hidden();
  tp_time_.operations += time.operations;
  tp_time_.waited += time.waited;
}

void Trainer::say_tp_time() {
  if (tp_time_.operations == 0.0) return;
  parts_.console.line(fmt::format(
      "tensor parallelism: rank 0's layers communicated for {:.2f} s, {:.0f} % of it beside "
      "computation (parallel.tp_overlap)",
      tp_time_.operations, 100 * tp_time_.hidden()));
}

// Each sample counts once: in the rows of one data-parallel rank, and of the tp ranks, which hold
// the same sums, in one's.
std::optional<EvalMetrics> Trainer::evaluate() {
  const auto& config = parts_.config;
  const SampleSource& source = *parts_.valid_data;
  const Sampler in_order(source.num_samples(), config.run.seed, /*shuffle=*/false);
  const int64_t batch_size = config.training.global_batch_size;
  EvalMetrics eval;
  eval.step = progress_.step;
  eval.samples = source.num_samples();
  // As many batches as asked for, without overflow; the last may be smaller.
  if (const auto& batches = config.eval.batches;
      batches && *batches <= source.num_samples() / batch_size)
    eval.samples = *batches * batch_size;
  const BatchShape shape = batch_shape();
  // The sum of the batches' mean losses, each times its targets, and what the model counts.
  std::vector<double> sums(kMostScores, 0.0);
  size_t scores = 0;
  for (int64_t done = 0; done < eval.samples;) {
    if (parts_.hooks.validation_batch) parts_.hooks.validation_batch(eval.step, done);
    stop_ = stop_agreed();
    if (stop_) return std::nullopt;
    const int64_t size = std::min(batch_size, eval.samples - done);
    const auto samples = in_order.global_batch(done, size);
    const int64_t targets = counted_targets(source, samples);
    const int64_t micro_batches = num_micro_batches(size, shape.micro_batch_size, shape.dp);
    for (int64_t i = 0; i < micro_batches; ++i) {
      const auto found =
          parts_.executor.evaluate(load_micro_batch(source, samples, shape, i, std::nullopt));
      scores = found.size();
      sums[kLossSum] += found[kLossSum] * static_cast<double>(targets);
      for (size_t k = 1; k < scores; ++k) sums[k] += found[k];
    }
    eval.targets += targets;
    done += size;
  }
  if (parts_.mesh.tp_rank() != 0) std::fill(sums.begin(), sums.end(), 0.0);
  at::Tensor sum = at::tensor(sums, at::kDouble);
  parts_.mesh.world().all_reduce(sum, ReduceOp::kSum).wait();
  const auto mean = [&](size_t score, int64_t count) {
    return sum[static_cast<int64_t>(score)].item<double>() / static_cast<double>(count);
  };
  eval.loss = mean(kLossSum, eval.targets);
  if (scores > kRightTargets) eval.accuracy = mean(kRightTargets, eval.targets);
  if (scores > kRightSamples && config.data.kind == DataKind::kPairs)
    eval.exact_match = mean(kRightSamples, eval.samples);
  return eval;
}

void Trainer::save() {
  const auto start = std::chrono::steady_clock::now();
  progress_.loss_scale = scaler_.enabled() ? std::optional(scaler_.state()) : std::nullopt;
  Manifest manifest = parts_.manifest;
  record_progress(progress_, manifest);
  const Snapshot snapshot = take_snapshot(parts_.buckets, parts_.mesh, manifest.states);
  std::filesystem::path folder;
  {
    const bool root = parts_.mesh.world().rank() == 0;
    const StopSignal::Uninterrupted whole(parts_.stop_signal, root);
    if (parts_.metrics) parts_.metrics->sync();  // no line of a saved step may be missing
    if (parts_.owed && owed_) parts_.owed->note(progress_.step);
    folder = parts_.checkpoints.save(std::move(manifest), snapshot.pieces);
    stop_ = stop_ || stop_agreed();  // one that came during the save needs no further step
    if (stop_) parts_.stop_signal.ignore_from_now(root);
  }
  if (parts_.moments) parts_.moments->release();
  meet_after_file_work(parts_.mesh.world());
  parts_.console.line(fmt::format("saved {} in {:.2f} s", folder.string(), seconds_since(start)));
}

BatchShape Trainer::batch_shape() const {
  const bool fp64 = parts_.config.precision.params == ParamsDtype::kFp64;
  return {parts_.config.training.micro_batch_size, parts_.mesh.dp(), parts_.mesh.dp_rank(),
          fp64 ? at::kDouble : at::kFloat};
}

// A stage's buckets follow each other, but for one that another stage lists first (a tied weight).
std::vector<std::pair<std::string, double>> Trainer::stage_norms(const StepSums& sums) const {
  std::vector<std::pair<std::string, double>> norms;
  for (size_t i = 0; i < sums.bucket_squares.size(); ++i) {
    const std::string& stage = parts_.bucket_stages[i];
    const auto known = std::find_if(norms.begin(), norms.end(),
                                    [&](const auto& norm) { return norm.first == stage; });
    auto& norm = known == norms.end() ? norms.emplace_back(stage, 0.0) : *known;
    norm.second += sums.bucket_squares[i];
  }
  for (auto& [stage, norm] : norms) norm = std::sqrt(norm);
  return norms;
}

}  // namespace tessera

#include "training/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "models/scores.h"
#include "optim/grad_norm.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "parallel/fsdp/compare_replicas.h"
#include "training/nonfinite.h"
#include "training/train_state.h"

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
      scaler_(parts.config.precision.loss_scale, is_fp16(parts.config.precision)) {
  if (progress_.step > 0) scaler_.restore(progress_.loss_scale);
}

TrainOutcome Trainer::run() {
  const auto& config = parts_.config;
  const int64_t total = config.training.steps;
  parts_.console.header();
  while (progress_.step < total) {
    const std::optional<StepMetrics> metrics = train_step();
    if (!metrics) continue;  // rolled back
    const int64_t step = progress_.step;
    parts_.memory.after_step();
    if (parts_.metrics) parts_.metrics->write(*metrics);
    if (is_due(step, config.training.log_every))
      parts_.console.progress(*metrics, total,
                              seconds_per_step_ * static_cast<double>(total - step));
    const bool last = step == total;
    if (parts_.valid_data && (is_due(step, config.eval.every) || (last && config.eval.every > 0))) {
      const EvalMetrics eval = evaluate();
      if (parts_.metrics) parts_.metrics->write(eval);
      parts_.console.line(eval_text(eval, config.data.kind));
    }
    const bool stop = stop_agreed_ || config.training.stop_after == step;
    if (last || stop || is_due(step, config.checkpoint.every)) save();
    if (last || stop) say_tp_time();
    if (stop && !last) {
      parts_.console.line(fmt::format(
          "stopped on request after step {} of {}, saved; start the same command to go on", step,
          total));
      return TrainOutcome::kStoppedAfterSave;
    }
  }
  return TrainOutcome::kDone;
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
    compare_replicas(parts_.buckets, parts_.mesh, progress_.step + 1);
  const StepSums sums = sum_over_ranks(own_loss);

  StepMetrics metrics;
  metrics.step = progress_.step + 1;
  metrics.loss = sums.loss;
  metrics.grad_norm = sums.grad_norm;
  metrics.lr =
      learning_rate(config.schedule, config.optimizer.lr, config.training.steps, metrics.step);
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
  const int64_t first_row = progress_.step * batch_size;  // names the dropout masks
  const int64_t micro_batches = num_micro_batches(batch_size, shape.micro_batch_size, shape.dp);
  at::Tensor loss = parts_.mesh.device().zeros({1}, at::kDouble);
  for (int64_t i = 0; i < micro_batches; ++i)
    loss += parts_.executor.forward_backward(
        load_micro_batch(parts_.train_data, samples, shape, i, first_row),
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
  stop_agreed_ = sum[buckets + 1] > 0.0;
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
  if (metrics.step > last_failed_step_) progress_.failures_in_a_row = 0;
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
  last_failed_step_ = std::max(last_failed_step_, step);
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
  back.skipped = progress_.skipped;  // those of the checkpoint are among them
  add_range(back.skipped, batch.counters);
  parts_.console.warn(
      fmt::format("{}. Going back to {} and on without these samples", what, folder->string()));
  if (parts_.metrics)
    parts_.metrics->write(RollbackEvent{progress_.step + 1, back.step, batch.counters.begin,
                                        batch.counters.end, parameter});
  progress_ = std::move(back);
  scaler_.restore(progress_.loss_scale);
}

void Trainer::measure(StepMetrics& metrics, double seconds) {
  at::Tensor peak =
      at::full({1}, static_cast<double>(peak_bytes(parts_.mesh.device())), at::kDouble);
  parts_.mesh.world().all_reduce(peak, ReduceOp::kMax).wait();
  seconds_per_step_ = seconds_per_step_ == 0.0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
  metrics.tokens = metrics.step * positions_per_step();
  metrics.step_ms = 1e3 * seconds;
  metrics.tokens_per_s = static_cast<double>(positions_per_step()) / seconds;
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
EvalMetrics Trainer::evaluate() {
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
  progress_.loss_scale = scaler_.state();
  Manifest manifest = parts_.manifest;
  record_progress(progress_, manifest);
  manifest.tokens = progress_.step * positions_per_step();
  const Snapshot snapshot = take_snapshot(parts_.buckets, parts_.mesh, manifest.states);
  const auto folder = parts_.checkpoints.save(std::move(manifest), snapshot.pieces);
  parts_.checkpoints.retire_old();
  if (parts_.moments) parts_.moments->release();
  parts_.console.line(fmt::format("saved {} in {:.2f} s", folder.string(), seconds_since(start)));
}

int64_t Trainer::positions_per_step() const {
  return parts_.config.training.global_batch_size * parts_.train_data.positions_per_sample();
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

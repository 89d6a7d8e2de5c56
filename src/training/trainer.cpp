#include "training/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/process_memory.h"
#include "optim/adamw.h"
#include "optim/grad_norm.h"
#include "optim/lr_schedule.h"
#include "parallel/fsdp/compare_replicas.h"
#include "training/train_state.h"

namespace tessera {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool is_due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

}  // namespace

Trainer::Trainer(TrainerParts parts, int64_t step)
    : parts_(parts), sampler_(parts.train_data.num_samples(), parts.config.run.seed), step_(step) {}

TrainOutcome Trainer::run() {
  const auto& config = parts_.config;
  const int64_t total = config.training.steps;
  parts_.console.header();
  while (step_ < total) {
    StepMetrics metrics = train_step();
    parts_.memory.after_step();
    if (parts_.metrics) parts_.metrics->write(metrics);
    if (is_due(step_, config.training.log_every))
      parts_.console.progress(metrics, total,
                              seconds_per_step_ * static_cast<double>(total - step_));
    const bool last = step_ == total;
    if (parts_.valid_data &&
        (is_due(step_, config.eval.every) || (last && config.eval.every > 0))) {
      const EvalMetrics eval = evaluate();
      if (parts_.metrics) parts_.metrics->write(eval);
      parts_.console.line(fmt::format("validation at step {}: loss {:.4f} over {} tokens",
                                      eval.step, eval.eval_loss, eval.eval_tokens));
    }
    const bool stop = stop_agreed_ || config.training.stop_after == step_;
    if (last || stop || is_due(step_, config.checkpoint.every)) save();
    if (stop && !last) {
      parts_.console.line(fmt::format(
          "stopped on request after step {} of {}, saved; start the same command to go on", step_,
          total));
      return TrainOutcome::kStoppedAfterSave;
    }
  }
  return TrainOutcome::kDone;
}

StepMetrics Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  const auto& config = parts_.config;
  const int64_t batch_size = config.training.global_batch_size;
  const auto samples = sampler_.global_batch(step_ * batch_size, batch_size);

  double loss = 0.0;
  const BatchShape shape = batch_shape();
  const int64_t micro_batches = num_micro_batches(batch_size, shape.micro_batch_size, shape.dp);
  for (int64_t i = 0; i < micro_batches; ++i)
    loss += parts_.executor.forward_backward(
        load_micro_batch(parts_.train_data, samples, shape, i, step_ * batch_size),
        {.first = i == 0, .last = i + 1 == micro_batches});
  if (is_due(step_ + 1, config.debug.compare_replicas_every))
    compare_replicas(parts_.buckets, parts_.mesh, step_ + 1);

  // One small sum over all ranks. Ranks of a tp group hold the same loss, so one of them counts.
  at::Tensor sums = at::empty({3}, at::kDouble);
  auto* sum = sums.mutable_data_ptr<double>();
  sum[0] = parts_.mesh.tp_rank() == 0 ? loss : 0.0;
  sum[1] = local_squared_grad_norm(parts_.buckets, parts_.mesh);
  sum[2] = parts_.stop_signal.requested() ? 1.0 : 0.0;
  parts_.mesh.world().all_reduce(sums, ReduceOp::kSum).wait();
  stop_agreed_ = sum[2] > 0.0;

  StepMetrics metrics;
  metrics.step = step_ + 1;
  metrics.loss = sum[0];
  metrics.grad_norm = std::sqrt(sum[1]);
  if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm))
    fail("train",
         "step {}: loss {}, gradient norm {}: not finite, so no update was made; samples [{}]. "
         "Earlier checkpoints are as they were; go on from one with a lower optimizer.lr",
         metrics.step, metrics.loss, metrics.grad_norm, fmt::join(samples, ", "));
  metrics.lr =
      learning_rate(config.schedule, config.optimizer.lr, config.training.steps, step_ + 1);
  adamw_step(parts_.buckets, config.optimizer, metrics.lr,
             clip_factor(metrics.grad_norm, config.training.clip_grad_norm), step_ + 1);
  parts_.executor.parameters_changed();
  ++step_;

  at::Tensor peak = at::full({1}, static_cast<double>(peak_resident_bytes()), at::kDouble);
  parts_.mesh.world().all_reduce(peak, ReduceOp::kMax).wait();
  const double seconds = seconds_since(start);
  seconds_per_step_ = seconds_per_step_ == 0.0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
  metrics.tokens = step_ * batch_size * config.data.seq_len;
  metrics.step_ms = 1e3 * seconds;
  metrics.tokens_per_s = static_cast<double>(batch_size * config.data.seq_len) / seconds;
  metrics.peak_memory = static_cast<int64_t>(peak.item<double>());
  if (config.training.log_samples) metrics.samples = samples;
  return metrics;
}

EvalMetrics Trainer::evaluate() {
  const auto& config = parts_.config;
  const Sampler in_order(parts_.valid_data->num_samples(), config.run.seed, /*shuffle=*/false);
  const int64_t batch_size = config.training.global_batch_size;
  const int64_t available = parts_.valid_data->num_samples();
  // As many as asked for, without overflow; the last batch may be smaller.
  const int64_t total =
      config.eval.batches > available / batch_size ? available : config.eval.batches * batch_size;
  const BatchShape shape = batch_shape();
  double loss = 0.0;  // sum of the batches' means, each times its samples
  for (int64_t done = 0; done < total;) {
    const int64_t size = std::min(batch_size, total - done);
    const auto samples = in_order.global_batch(done, size);
    const int64_t micro_batches = num_micro_batches(size, shape.micro_batch_size, shape.dp);
    for (int64_t i = 0; i < micro_batches; ++i)
      loss += parts_.executor.evaluate(
                  load_micro_batch(*parts_.valid_data, samples, shape, i, std::nullopt)) *
              static_cast<double>(size);
    done += size;
  }
  at::Tensor sum = at::full({1}, parts_.mesh.tp_rank() == 0 ? loss : 0.0, at::kDouble);
  parts_.mesh.world().all_reduce(sum, ReduceOp::kSum).wait();
  return {step_, sum.item<double>() / static_cast<double>(total), total * config.data.seq_len};
}

void Trainer::save() {
  const auto start = std::chrono::steady_clock::now();
  Manifest manifest = parts_.manifest;
  manifest.step = step_;
  manifest.samples = step_ * parts_.config.training.global_batch_size;
  manifest.tokens = manifest.samples * parts_.config.data.seq_len;
  const auto pieces = pieces_to_save(parts_.buckets, parts_.mesh, manifest.states);
  const auto folder = parts_.checkpoints.save(std::move(manifest), pieces);
  if (parts_.moments) parts_.moments->release();
  parts_.console.line(fmt::format("saved {} in {:.2f} s", folder.string(), seconds_since(start)));
}

BatchShape Trainer::batch_shape() const {
  const bool fp64 = parts_.config.precision.params == ParamsDtype::kFp64;
  return {parts_.config.data.seq_len,     parts_.config.training.micro_batch_size,
          parts_.config.model.vocab_size, parts_.mesh.dp(),
          parts_.mesh.dp_rank(),          fp64 ? at::kDouble : at::kFloat};
}

}  // namespace tessera

#include "training/output/reporter.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tessera {
namespace {

std::string text_of(const EvalMetrics& eval, DataKind kind) {
  std::string text = fmt::format("validation at step {}: loss {:.4f}", eval.step, eval.loss);
  if (eval.accuracy) text += fmt::format(", accuracy {:.2f} %", 1e2 * *eval.accuracy);
  if (eval.exact_match) text += fmt::format(", exact match {:.2f} %", 1e2 * *eval.exact_match);
  if (kind == DataKind::kImages) return text + fmt::format(" over {} images", eval.samples);
  text += fmt::format(" over {} tokens", eval.targets);
  if (kind == DataKind::kPairs) text += fmt::format(" of {} pairs", eval.samples);
  return text;
}

}  // namespace

Reporter::Reporter(const Config& config, Console& console, MetricsFile* metrics,
                   MemoryReport& memory)
    : config_(config), console_(console), metrics_(metrics), memory_(memory) {}

void Reporter::step(const StepMetrics& metrics, const TpTime& tp_time, bool log) {
  memory_.after_step();
  if (metrics_) metrics_->write(metrics);
  times_.add(metrics.step_ms, metrics.tokens_per_s);
  tp_time_.operations += tp_time.operations;
  tp_time_.waited += tp_time.waited;
  const double seconds = metrics.step_ms / 1e3;
  seconds_per_step_ = seconds_per_step_ == 0.0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
  if (!log) return;
  const int64_t total = config_.training.steps;
  console_.progress(metrics, std::exchange(times_, {}), total,
                    seconds_per_step_ * static_cast<double>(total - metrics.step));
}

bool Reporter::write(const EvalMetrics& eval) {
  if (!metrics_) return true;
  metrics_->write(eval);
  try {
    metrics_->sync();
  } catch (const Error& failure) {
    if (config_.checkpoint.on_error == OnSaveError::kStop) throw;
    console_.warn(failure.what());
    return false;
  }
  return true;
}

void Reporter::say(const EvalMetrics& eval) {
  console_.line(text_of(eval, config_.data.kind));
}

void Reporter::rolled_back(const RollbackEvent& event) {
  if (metrics_) metrics_->write(event);
}

void Reporter::save(const SaveMetrics& save, const std::filesystem::path& folder) {
  if (metrics_) metrics_->write(save);
  if (!save.failure.empty()) return console_.warn(save.failure);
  std::string text = fmt::format("saved {} in {:.2f} s", folder.string(), save.save_ms / 1e3);
  if (config_.checkpoint.async && save.stall_ms < save.save_ms)
    text += fmt::format(", training waited {:.2f} s", save.stall_ms / 1e3);
  console_.line(text);
}

void Reporter::end() {
  if (tp_time_.operations == 0.0) return;
  console_.line(fmt::format(
      "tensor parallelism: rank 0's layers communicated for {:.2f} s, {:.0f} % of it beside "
      "computation (parallel.tp_overlap)",
      tp_time_.operations, 100 * tp_time_.hidden()));
}

void Reporter::sync() {
  if (metrics_) metrics_->sync();
}

}  // namespace tessera

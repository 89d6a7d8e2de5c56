#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "config/config.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "training/output/console.h"
#include "training/output/memory_report.h"
#include "training/output/metrics.h"
#include "training/output/step_times.h"

namespace tessera {

// What a run tells while it trains: to a person on the console, to a program in metrics.jsonl. All
// ranks have one; only rank 0's writes. It keeps what spans several steps: the times since the last
// line, the time that is left, the communication of tensor parallelism.
class Reporter {
 public:
  // All arguments outlive the reporter. `metrics`: null except on rank 0.
  Reporter(const Config& config, Console& console, MetricsFile* metrics, MemoryReport& memory);

  // The column names of the lines that follow.
  void begin() { console_.header(); }
  // Reports a step that is done, with a line on the console if `log`. Collective, since the memory
  // report is.
  void step(const StepMetrics& metrics, const TpTime& tp_time, bool log);
  // write() puts a validation's line into metrics.jsonl. True if it is then on the disk; false
  // where it cannot be now and the run goes on all the same (checkpoint.on_error: warn). say() puts
  // its line on the console.
  bool write(const EvalMetrics& eval);
  void say(const EvalMetrics& eval);
  // Writes the rollback to metrics.jsonl, from which the lines of steps after event.back_to are
  // removed.
  void rolled_back(const RollbackEvent& event);
  // A save that is done. `folder`: what was committed; unused where the save has failed.
  void save(const SaveMetrics& save, const std::filesystem::path& folder);
  void line(const std::string& text) { console_.line(text); }
  void warn(const std::string& text) { console_.warn(text); }
  // Of the whole run, at its end.
  void end();

  // Returns when all lines of metrics.jsonl are on the disk. Also from another thread.
  void sync();

 private:
  const Config& config_;
  Console& console_;
  MetricsFile* metrics_;
  MemoryReport& memory_;
  StepTimes times_;                // since the last line
  TpTime tp_time_;                 // of all steps
  double seconds_per_step_ = 0.0;  // smoothed, for the time that is left
};

}  // namespace tessera

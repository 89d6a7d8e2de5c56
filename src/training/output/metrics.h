#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files/files.h"

namespace tessera {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0.0;       // mean over the tokens of the global batch, before the update
  double grad_norm = 0.0;  // before clipping
  double lr = 0.0;
  int64_t tokens = 0;  // (or images) consumed since step 0, padding included
  double step_ms = 0.0;
  double tokens_per_s = 0.0;
  int64_t peak_memory = 0;       // bytes: the largest rank's peak resident memory so far
  std::vector<int64_t> samples;  // ids of the global batch, if asked for
  bool updated = true;           // false: the step was not finite and changed nothing
  // Communication of tensor parallelism on rank 0, and the part of it that ran beside computation;
  // 0: there is none, or the device does not tell.
  double tp_ms = 0.0;
  double tp_hidden = 0.0;
  double loss_scale = 0.0;                                  // of this step; 0: none is in use
  std::vector<std::pair<std::string, double>> stage_norms;  // by name, if asked for
};

// A rollback: training went on after step `back_to` without some samples.
struct RollbackEvent {
  int64_t failed_step = 0;
  int64_t back_to = 0;
  int64_t skipped_begin = 0;  // global sample counters [begin, end) that no step takes any more
  int64_t skipped_end = 0;
  std::string parameter;  // the first whose gradient was not finite; empty: the loss alone was not
};

// A save that is done: committed, or failed.
struct SaveMetrics {
  int64_t step = 0;
  double stall_ms = 0.0;  // that the loop waited
  double save_ms = 0.0;   // from the end of the step to the commit
  std::string failure;    // why it failed; empty: it is committed
};

// The states that a start has read from a checkpoint.
struct LoadMetrics {
  int64_t step = 0;      // that the run goes on from; 0 for a start with weights alone
  double load_ms = 0.0;  // of rank 0, until every rank had its own
};

struct EvalMetrics {
  int64_t step = 0;
  double loss = 0.0;                  // mean over the targets
  int64_t targets = 0;                // that count, of all samples
  int64_t samples = 0;                // each was taken once
  std::optional<double> accuracy;     // part of the targets that the model gives its largest logit
  std::optional<double> exact_match;  // part of the samples whose targets are all right
};

// RUN/metrics.jsonl, one JSON object a line, floats with as many digits as give back the same bits,
// so that they can be compared bit for bit. Written by rank 0.
class MetricsFile {
 public:
  // Keeps the lines of steps up to `resumed_step` of what is there and drops the rest, atomically.
  // What a crash or an editor can leave there does not stop a run: empty lines and a last line
  // without a newline are dropped, lines that are no metrics are moved to FILE.unreadable, and
  // `warn` is called about it.
  // `keep_lines`: lines that cannot be written (a full disk) are kept in memory and written with a
  // later one, and `warn` is called once; false: that is an Error.
  // `check_ours` is called before anything is written, and throws if the file is another start's
  // now (ReplacedError). A line that slips through behind its last call, because the process was
  // stopped in between, does not reach the other start's file either: that start has put a new file
  // in the place of this one's (the constructor does), or drops the line when it does so.
  MetricsFile(
      const std::filesystem::path& path, int64_t resumed_step, bool keep_lines,
      std::function<void(const std::string&)> warn, std::function<void()> check_ours = [] {});

  void write(const StepMetrics& metrics);
  void write(const EvalMetrics& metrics);
  void write(const SaveMetrics& metrics);
  void write(const LoadMetrics& metrics);
  // Drops the lines of steps after event.back_to and writes a line that tells why. Its step is
  // back_to: a run that resumes there still leaves the samples out.
  void write(const RollbackEvent& event);

  // Returns when all lines are on the disk; Error if one cannot be. Also from another thread than
  // the one that writes lines, while that cuts none.
  void sync();

 private:
  void cut_back(int64_t last_step);
  void write_line(const nlohmann::ordered_json& json);
  void flush();  // with the lock held

  std::filesystem::path path_;
  bool keep_lines_;
  std::function<void(const std::string&)> warn_;
  std::function<void()> check_ours_;
  File file_;
  std::mutex mutex_;     // guards what is below
  std::string pending_;  // not in the file yet
  int64_t size_ = 0;     // of what is in the file
};

}  // namespace tessera

#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0.0;       // mean over the tokens of the global batch, before the update
  double grad_norm = 0.0;  // before clipping
  double lr = 0.0;
  int64_t tokens = 0;  // consumed since step 0
  double step_ms = 0.0;
  double tokens_per_s = 0.0;
  int64_t peak_memory = 0;       // bytes: the largest rank's peak resident memory so far
  std::vector<int64_t> samples;  // ids of the global batch, if asked for
};

struct EvalMetrics {
  int64_t step = 0;
  double eval_loss = 0.0;
  int64_t eval_tokens = 0;
};

// RUN/metrics.jsonl, one JSON object a line, floats with 17 significant digits so that they can be
// compared bit for bit. Written by rank 0.
class MetricsFile {
 public:
  // Keeps the lines of steps up to `resumed_step` of what is there and drops the rest, atomically.
  // UserError if a line that must be kept cannot be read.
  MetricsFile(const std::filesystem::path& path, int64_t resumed_step);

  void write(const StepMetrics& metrics);
  void write(const EvalMetrics& metrics);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write_line(const std::string& line);

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tessera

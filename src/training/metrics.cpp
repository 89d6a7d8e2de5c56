#include "training/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace tessera {
namespace {

// JSON has no NaN: a validation loss that is not finite is written as a string.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.17g}", value) : fmt::format("\"{}\"", value);
}

// The lines that belong to steps up to `last_step`. A torn last line (the process was killed while
// writing) is dropped with what follows.
std::string lines_up_to(const std::filesystem::path& path, int64_t last_step) {
  std::ifstream in(path);
  std::string kept, line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    const bool torn = in.eof();  // no newline at its end
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
      if (torn) break;
      fail_user("metrics",
                "{}:{}: not a line of metrics: '{}'; mend the line or move the file away",
                path.string(), number, line.substr(0, 80));
    }
    if (json["step"].get<int64_t>() <= last_step) kept += line + '\n';
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t resumed_step) : path_(path) {
  if (std::filesystem::exists(path)) write_file_atomic(path, lines_up_to(path, resumed_step));
  file_.reset(std::fopen(path.c_str(), "a"));
  if (!file_) fail("metrics", "cannot open {} for writing", path.string());
}

void MetricsFile::write(const StepMetrics& m) {
  std::string line = fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "lr": {}, "tokens": {}, "step_ms": {}, )"
      R"("tokens_per_s": {}, "peak_memory_bytes": {})",
      m.step, number(m.loss), number(m.grad_norm), number(m.lr), m.tokens, number(m.step_ms),
      number(m.tokens_per_s), m.peak_memory);
  if (!m.samples.empty()) line += fmt::format(R"(, "samples": [{}])", fmt::join(m.samples, ", "));
  write_line(line + "}\n");
}

void MetricsFile::write(const EvalMetrics& m) {
  write_line(fmt::format("{{\"step\": {}, \"eval_loss\": {}, \"eval_tokens\": {}}}\n", m.step,
                         number(m.eval_loss), m.eval_tokens));
}

void MetricsFile::write_line(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0)
    fail("metrics", "cannot write to {}: is the disk full?", path_.string());
}

}  // namespace tessera

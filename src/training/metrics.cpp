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

// JSON has no NaN: what is not finite is written as a string.
std::string number(double value) {
  if (std::isnan(value)) return "\"nan\"";  // of either sign
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
  cut_back(resumed_step);
}

void MetricsFile::cut_back(int64_t last_step) {
  file_.reset();
  if (std::filesystem::exists(path_)) write_file_atomic(path_, lines_up_to(path_, last_step));
  file_.reset(std::fopen(path_.c_str(), "a"));
  if (!file_) fail("metrics", "cannot open {} for writing", path_.string());
}

void MetricsFile::write(const StepMetrics& m) {
  std::string line = fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "lr": {}, "tokens": {}, "step_ms": {}, )"
      R"("tokens_per_s": {}, "peak_memory_bytes": {})",
      m.step, number(m.loss), number(m.grad_norm), number(m.lr), m.tokens, number(m.step_ms),
      number(m.tokens_per_s), m.peak_memory);
  if (m.tp_ms > 0.0)
    line += fmt::format(R"(, "tp_ms": {}, "tp_hidden": {})", number(m.tp_ms), number(m.tp_hidden));
  if (!m.updated) line += R"(, "skipped": true)";
  if (m.loss_scale != 0.0) line += fmt::format(R"(, "loss_scale": {})", number(m.loss_scale));
  if (!m.stage_norms.empty()) {
    std::vector<std::string> norms;
    for (const auto& [stage, norm] : m.stage_norms)
      norms.push_back(fmt::format(R"("{}": {})", stage, number(norm)));
    line += fmt::format(R"(, "stage_norms": {{{}}})", fmt::join(norms, ", "));
  }
  if (!m.samples.empty()) line += fmt::format(R"(, "samples": [{}])", fmt::join(m.samples, ", "));
  write_line(line + "}\n");
}

void MetricsFile::write(const EvalMetrics& m) {
  std::string line =
      fmt::format(R"({{"step": {}, "eval_loss": {}, "eval_tokens": {}, "eval_samples": {})", m.step,
                  number(m.loss), m.targets, m.samples);
  if (m.accuracy) line += fmt::format(R"(, "eval_accuracy": {})", number(*m.accuracy));
  if (m.exact_match) line += fmt::format(R"(, "eval_exact_match": {})", number(*m.exact_match));
  write_line(line + "}\n");
}

void MetricsFile::write(const RollbackEvent& e) {
  cut_back(e.back_to);
  const std::string parameter = e.parameter.empty() ? "null" : '"' + e.parameter + '"';
  write_line(fmt::format(R"({{"step": {}, "event": "rollback", "failed_step": {}, "back_to": {}, )"
                         R"("skipped_samples": [{}, {}], "parameter": {}}})"
                         "\n",
                         e.back_to + 1, e.failed_step, e.back_to, e.skipped_begin, e.skipped_end,
                         parameter));
}

void MetricsFile::write_line(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0)
    fail("metrics", "cannot write to {}: is the disk full?", path_.string());
}

}  // namespace tessera

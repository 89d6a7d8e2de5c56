#include "training/output/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/files/files.h"
#include "base/system_error.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;

// JSON has no NaN: what is not finite is written as a string.
ordered_json number(double value) {
  if (std::isnan(value)) return "nan";  // of either sign
  return std::isfinite(value) ? ordered_json(value) : ordered_json(fmt::format("{}", value));
}

// The lines of a metrics file up to a last step, and what else was found in the file.
struct OldLines {
  std::string kept;
  std::string unreadable;                  // whole lines that are no metrics
  std::vector<std::string> unreadable_at;  // "line 7"
  int64_t empty = 0;                       // lines of nothing but spaces and NUL bytes
  bool torn = false;  // the last one, of a process that was killed while writing
};

// A crash may leave NUL bytes where data had not reached the disk; an editor, carriage returns.
std::string without_strays(std::string line) {
  std::erase(line, '\0');
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

OldLines lines_up_to(const std::filesystem::path& path, int64_t last_step) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("metrics", "cannot read {}: {}", path.string(), reason_of(errno));
  OldLines lines;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    const bool whole = !in.eof();  // a newline at its end
    line = without_strays(std::move(line));
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      ++lines.empty;
      continue;
    }
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer()) {
      if (json["step"].get<int64_t>() <= last_step) lines.kept += line + '\n';
    } else if (whole) {
      lines.unreadable += line + '\n';
      lines.unreadable_at.push_back(fmt::format("line {}", number));
    } else {
      lines.torn = true;
    }
  }
  if (in.bad()) fail("metrics", "cannot read {}: {}", path.string(), reason_of(errno));
  return lines;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t resumed_step, bool keep_lines,
                         std::function<void(const std::string&)> warn,
                         std::function<void()> check_ours)
    : path_(path),
      keep_lines_(keep_lines),
      warn_(std::move(warn)),
      check_ours_(std::move(check_ours)) {
  cut_back(resumed_step);
}

// What is cut may be among the lines that are still to be written: these must be in the file first.
void MetricsFile::cut_back(int64_t last_step) {
  const std::lock_guard lock(mutex_);
  check_ours_();
  if (file_.is_open()) flush();
  file_ = File();
  if (type_of(path_) != std::filesystem::file_type::not_found) {
    const OldLines old = lines_up_to(path_, last_step);
    if (!old.unreadable.empty()) {
      const std::filesystem::path aside = path_.string() + ".unreadable";
      std::ofstream(aside, std::ios::binary | std::ios::app) << old.unreadable;
      warn_(fmt::format("{}: {} of it are no metrics; moved to {}", path_.string(),
                        fmt::join(old.unreadable_at, ", "), aside.string()));
    }
    if (old.empty > 0) warn_(fmt::format("{}: {} empty lines dropped", path_.string(), old.empty));
    if (old.torn)
      warn_(fmt::format("{}: its last line was not written to its end; dropped", path_.string()));
    write_file_atomic(path_, old.kept);
    size_ = static_cast<int64_t>(old.kept.size());
  }
  file_ = File::open_to_write(path_);
}

void MetricsFile::write(const StepMetrics& m) {
  ordered_json line = {{"step", m.step},
                       {"loss", number(m.loss)},
                       {"grad_norm", number(m.grad_norm)},
                       {"lr", number(m.lr)},
                       {"tokens", m.tokens},
                       {"step_ms", number(m.step_ms)},
                       {"tokens_per_s", number(m.tokens_per_s)},
                       {"peak_memory_bytes", m.peak_memory}};
  if (m.tp_ms > 0.0) {
    line["tp_ms"] = number(m.tp_ms);
    line["tp_hidden"] = number(m.tp_hidden);
  }
  if (!m.updated) line["skipped"] = true;
  if (m.loss_scale != 0.0) line["loss_scale"] = number(m.loss_scale);
  for (const auto& [stage, norm] : m.stage_norms) line["stage_norms"][stage] = number(norm);
  if (!m.samples.empty()) line["samples"] = m.samples;
  write_line(line);
}

void MetricsFile::write(const EvalMetrics& m) {
  ordered_json line = {{"step", m.step},
                       {"eval_loss", number(m.loss)},
                       {"eval_tokens", m.targets},
                       {"eval_samples", m.samples}};
  if (m.accuracy) line["eval_accuracy"] = number(*m.accuracy);
  if (m.exact_match) line["eval_exact_match"] = number(*m.exact_match);
  write_line(line);
}

void MetricsFile::write(const RollbackEvent& e) {
  cut_back(e.back_to);
  write_line({{"step", e.back_to},
              {"event", "rollback"},
              {"failed_step", e.failed_step},
              {"back_to", e.back_to},
              {"skipped_samples", {e.skipped_begin, e.skipped_end}},
              {"parameter", e.parameter.empty() ? ordered_json() : ordered_json(e.parameter)}});
}

void MetricsFile::write(const SaveMetrics& m) {
  ordered_json line = {
      {"step", m.step}, {"save_stall_ms", number(m.stall_ms)}, {"save_ms", number(m.save_ms)}};
  if (!m.failure.empty()) line["save_failed"] = m.failure;
  write_line(line);
}

void MetricsFile::write(const LoadMetrics& m) {
  write_line({{"step", m.step}, {"load_ms", number(m.load_ms)}});
}

void MetricsFile::sync() {
  {
    const std::lock_guard lock(mutex_);
    check_ours_();
    flush();
  }
  file_.sync();  // without the lock: lines may come meanwhile, however slow the disk is
}

void MetricsFile::write_line(const ordered_json& json) {
  const std::lock_guard lock(mutex_);
  check_ours_();
  const bool first = pending_.empty();
  pending_ += json.dump() + '\n';
  try {
    flush();
  } catch (const Error& failure) {
    if (!keep_lines_) throw;
    if (first)
      warn_(fmt::format("{}; lines are kept and written when that can be done", failure.what()));
  }
}

// A part of a line that is there already when a write fails is written again over itself.
void MetricsFile::flush() {
  if (pending_.empty()) return;
  file_.write_at(pending_.data(), std::ssize(pending_), size_);
  size_ += std::ssize(pending_);
  pending_.clear();
}

}  // namespace tessera

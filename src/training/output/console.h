#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "training/output/metrics.h"
#include "training/output/step_times.h"

namespace tessera {

// What a person sees of a run: lines on standard output and in RUN/logs/train.log, from rank 0
// alone (the other ranks' consoles are silent). An interactive terminal gets a bar below the lines.
class Console {
 public:
  // An empty `log_file` makes a silent console. Error if the file cannot be opened. `ours`: whether
  // the file is still this process's; where it is not, lines go to standard output alone.
  explicit Console(const std::filesystem::path& log_file, std::function<bool()> ours = {});
  ~Console();

  void line(const std::string& text);
  void warn(const std::string& text) { line("warning: " + text); }
  // A line for the file alone: what standard error has said.
  void log(const std::string& text);
  // The column names of progress().
  void header();
  // Writes a line with the step's metrics and the times of all steps since the last such line.
  void progress(const StepMetrics& metrics, const StepTimes& times, int64_t total_steps,
                double seconds_left);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void clear_bar();  // with the lock held, as the next
  void write(const std::string& text);
  void write_to(std::FILE* file, const std::string& text);

  const std::function<bool()> ours_;
  std::mutex mutex_;  // a save that runs beside training has lines too
  std::unique_ptr<std::FILE, Close> log_;
  bool interactive_ = false;
  bool bar_shown_ = false;
};

// "3.08M parameters", "12.3K parameters", "950 parameters", "1 parameter".
std::string parameters_text(int64_t count);

}  // namespace tessera

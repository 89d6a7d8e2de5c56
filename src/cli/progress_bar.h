#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/process/byte_progress.h"

namespace tessera {

// A line that says how far a command has come, how fast it goes and how long it will take, on a
// terminal alone: on stderr, so that stdout stays what was asked for. It is gone when the object
// is.
class ProgressBar {
 public:
  // `what`: the first word of the line.
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws the line, a few times a second; may be called by several threads at once. Empty where
  // nobody sees it. The bar outlives it.
  ByteProgress::Show show();

 private:
  using Clock = std::chrono::steady_clock;

  void draw(int64_t done, int64_t total);

  const std::string what_;
  const bool seen_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex drawing_;
  Clock::time_point drawn_;  // the default: never
};

// "verify [#####...............]  25 %  1.0 of 4.0 GiB  512.0 MiB/s  6 s left"
std::string progress_line(const std::string& what, int64_t done, int64_t total, double seconds);

}  // namespace tessera

#include "training/output/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/system_error.h"
#include "base/text/quantities.h"
#include "parallel/comm/mpi/mpi_communicator.h"

namespace tessera {

Console::Console(const std::filesystem::path& log_file, std::function<bool()> ours)
    : ours_(std::move(ours)) {
  if (log_file.empty()) return;
  log_.reset(std::fopen(log_file.c_str(), "a"));
  if (!log_) fail("train", "cannot open {} for writing: {}", log_file.string(), reason_of(errno));
  // mpirun gives its ranks a terminal of its own making, whatever its output is;
  // launch/run_local.sh says whether there is a person's behind it.
  const char* term = std::getenv("TERM");
  interactive_ = isatty(STDOUT_FILENO) != 0 && term && std::string_view(term) != "dumb" &&
                 (!MpiRuntime::launched() || std::getenv("TESSERA_TERMINAL") != nullptr);
}

Console::~Console() {
  clear_bar();
}

void Console::line(const std::string& text) {
  const std::lock_guard lock(mutex_);
  write(text);
}

void Console::write(const std::string& text) {
  if (!log_) return;
  clear_bar();
  write_to(stdout, text);
  if (!ours_ || ours_()) write_to(log_.get(), text);
}

// A terminal that has gone away or a full log must not end a run, so failures are passed over.
void Console::write_to(std::FILE* file, const std::string& text) {
  std::fputs((text + '\n').c_str(), file);
  std::fflush(file);
}

void Console::log(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (log_ && (!ours_ || ours_())) write_to(log_.get(), text);
}

void Console::header() {
  line(fmt::format("{:>9} {:>10} {:>10} {:>10} {:>9} {:>8} {:>10} {:>10} {:>14}", "step", "loss",
                   "lr", "grad norm", "ms", "+-", "tokens/s", "memory", "time left"));
}

void Console::progress(const StepMetrics& m, const StepTimes& times, int64_t total_steps,
                       double seconds_left) {
  const std::lock_guard lock(mutex_);
  write(fmt::format("{:>9} {:>10.4f} {:>10.3e} {:>10.4f} {:>9.1f} {:>8.1f} {:>10.0f} {:>10} {:>14}",
                    m.step, m.loss, m.lr, m.grad_norm, times.mean_ms(), times.deviation_ms(),
                    times.tokens_per_s(), bytes_text(m.peak_memory), duration_text(seconds_left)));
  if (!interactive_) return;
  constexpr int64_t kWidth = 50;
  const int64_t full = kWidth * m.step / std::max<int64_t>(total_steps, 1);
  const std::string bar = fmt::format("[{}{}] {}/{}", std::string(full, '#'),
                                      std::string(kWidth - full, '.'), m.step, total_steps);
  std::fputs(bar.c_str(), stdout);
  std::fflush(stdout);
  bar_shown_ = true;
}

void Console::clear_bar() {
  if (!bar_shown_) return;
  std::fputs("\r\x1b[2K", stdout);  // back to the start of the line, and empty it
  bar_shown_ = false;
}

std::string parameters_text(int64_t count) {
  const auto value = static_cast<double>(count);
  std::string number = std::to_string(count);
  if (value >= 999.995e6)
    number = fmt::format("{:.2f}B", value / 1e9);
  else if (value >= 999.95e3)
    number = fmt::format("{:.2f}M", value / 1e6);
  else if (count >= 1000)
    number = fmt::format("{:.1f}K", value / 1e3);
  return number + (count == 1 ? " parameter" : " parameters");
}

}  // namespace tessera

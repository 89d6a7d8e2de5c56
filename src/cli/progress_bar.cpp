#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/text/quantities.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kBetween{100};

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && term && std::string_view(term) != "dumb";
}

}  // namespace

ProgressBar::ProgressBar(std::string what) : what_(std::move(what)), seen_(is_terminal()) {}

ProgressBar::~ProgressBar() {
  if (drawn_ == Clock::time_point()) return;
  std::fputs("\r\x1b[2K", stderr);  // back to the start of the line, and empty it
  std::fflush(stderr);
}

ByteProgress::Show ProgressBar::show() {
  if (!seen_) return {};
  return [this](int64_t done, int64_t total) { draw(done, total); };
}

void ProgressBar::draw(int64_t done, int64_t total) {
  const std::unique_lock lock(drawing_, std::try_to_lock);
  const Clock::time_point now = Clock::now();
  // The end is always drawn, so that even a short command shows what it has done.
  if (!lock || (done < total && now - drawn_ < kBetween)) return;
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  std::fputs(("\r\x1b[2K" + progress_line(what_, done, total, seconds)).c_str(), stderr);
  std::fflush(stderr);
}

std::string progress_line(const std::string& what, int64_t done, int64_t total, double seconds) {
  constexpr int64_t kWidth = 20;
  const double part = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const auto full = std::clamp(static_cast<int64_t>(part * kWidth), int64_t{0}, kWidth);
  const double rate = static_cast<double>(done) / std::max(seconds, 1e-3);
  return fmt::format(
      "{} [{}{}] {:3.0f} %  {} of {}  {}/s  {} left", what,
      std::string(static_cast<size_t>(full), '#'),
      std::string(static_cast<size_t>(kWidth - full), '.'), 100 * part, bytes_text(done),
      bytes_text(total), bytes_text(static_cast<int64_t>(rate)),
      rate > 0 ? duration_text(static_cast<double>(total - done) / rate) : "unknown time");
}

}  // namespace tessera

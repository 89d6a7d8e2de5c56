#include "cli/report_failure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "base/exit_codes.h"
#include "base/process/host_name.h"
#include "base/process/stack_trace.h"
#include "cli/launch_environment.h"
#include "parallel/comm/mpi/mpi_communicator.h"
#include "training/loop/stop_signal.h"

namespace tessera {
namespace {

// Waits for rank 0 to fail first, and says whether it did.
bool launcher_ends_us(std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kLook{20};
  const bool asked_before = stop_signal_came();
  for (std::chrono::milliseconds waited{0}; waited < limit; waited += kLook) {
    std::this_thread::sleep_for(kLook);
    if (!asked_before && stop_signal_came()) return true;
  }
  return false;
}

// One write: lines of several ranks must not mix.
void print(const std::string& text) {
  const std::string line = text + "\n";
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

std::string text_of(const std::exception& error, int rank) {
  return rank > 0 ? fmt::format("error: rank {} ({}): {}", rank, host_name(), error.what())
                  : fmt::format("error: {}", error.what());
}

// Ends the process after a while, unless this object goes before.
class Deadline {
 public:
  Deadline(std::chrono::seconds limit, std::string last_words, int code)
      : thread_([this, limit, words = std::move(last_words), code] {
          std::unique_lock lock(mutex_);
          if (gone_.wait_for(lock, limit, [this] { return done_; })) return;
          if (!words.empty()) print(words);
          _exit(code);
        }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    gone_.notify_all();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable gone_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

int report_failure(const std::exception& error, int rank) {
  constexpr std::chrono::seconds kRankZeroFirst{2};
  if (rank == 0 || !launcher_ends_us(kRankZeroFirst)) print(text_of(error, rank));
  return exit_code_of(error);
}

int report_before_mpi(const std::exception& error) {
  constexpr std::chrono::seconds kMeeting{10};
  const int code = exit_code_of(error);
  const LaunchEnvironment launch = LaunchEnvironment::read();
  const std::string text = text_of(error, launch.rank);
  bool told = launch.rank == 0 || !MpiRuntime::launched() || launch.ranks == 1;
  if (told) print(text);
  if (!MpiRuntime::launched() || launch.ranks == 1) return code;
  const Deadline deadline(kMeeting, told ? "" : text, code);
  try {
    MpiRuntime runtime(nullptr, nullptr);
    const auto first = runtime.find_refusal(code);
    told = told || !first->ours;
  } catch (const std::exception&) {  // this rank stands alone: nobody else speaks for it
  }
  if (!told) print(text);
  return code;
}

StartRecord::Voice voice_of_rank() {
  constexpr std::chrono::seconds kOtherRankFirst{10};
  return {.say = print,
          .told_elsewhere = [kOtherRankFirst] { return launcher_ends_us(kOtherRankFirst); },
          .stack = last_throw_stack};
}

}  // namespace tessera

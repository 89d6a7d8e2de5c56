#include "training/loop/stop_signal.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include "base/process/stop_requested.h"

namespace tessera {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};

// Two SIGINTs that are closer than this are one press of Ctrl-C, which came on two ways: from the
// terminal and from a launcher that passes it on.
constexpr int64_t kOnePressMs = 500;

// A signal handler can reach nothing but static storage.
std::atomic<bool> stop_requested{false};
std::atomic<int64_t> first_interrupt{0};  // in ms of the monotonic clock; 0: none
std::atomic<int> uninterrupted{0};        // how many reasons there are not to end at once
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

void end_at_once() {
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

void on_signal(int signal) {
  const int error = errno;
  stop_requested = true;
  if (signal == SIGINT) {
    int64_t none = 0;
    const int64_t now = now_ms();
    if (!first_interrupt.compare_exchange_strong(none, now) && now - none >= kOnePressMs &&
        uninterrupted == 0)
      end_at_once();
  }
  errno = error;
}

bool is_there(const std::filesystem::path& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

// Makes a file of the launch folder. Failures are ignored: without `keep` the script does not wait
// for the save, nothing else.
void make_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a write that is under way goes on
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : kSignals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
    sigaddset(&ours, signal);
  }
  sigprocmask(SIG_UNBLOCK, &ours, nullptr);
}

bool stop_signal_came() {
  return stop_requested;
}

StopSignal::StopSignal() {
  if (const char* folder = std::getenv("TESSERA_LAUNCH_FOLDER")) folder_ = folder;
}

bool StopSignal::requested() const {
  return stop_requested || (!folder_.empty() && is_there(folder_ / "stop"));
}

void StopSignal::check() const {
  if (requested()) throw StopRequested();
}

StopSignal::Uninterrupted::Uninterrupted(const StopSignal& signal, bool root) {
  ++uninterrupted;
  if (!root || signal.folder_.empty()) return;
  // The script writes `now` and then looks for `keep`; here it is the other way round. So at least
  // one of the two sees the other's file.
  file_ = signal.folder_ / "keep";
  make_file(file_);
  if (is_there(signal.folder_ / "now")) end_at_once();
}

StopSignal::Uninterrupted::~Uninterrupted() {
  if (--uninterrupted == 0 && !file_.empty()) ::unlink(file_.c_str());
}

void StopSignal::ignore_from_now(bool root) const {
  ++uninterrupted;
  if (root && !folder_.empty()) make_file(folder_ / "keep");
}

void forget_stop_signals() {
  stop_requested = false;
  first_interrupt = 0;
  uninterrupted = 0;
}

}  // namespace tessera

#include "training/stop_signal.h"

namespace tessera {
namespace {

// A signal handler can reach nothing but static storage.
volatile std::sig_atomic_t stop_requested = 0;

constexpr std::array<int, 4> kSignals{SIGTERM, SIGINT, SIGUSR1, SIGHUP};

void on_signal(int signal) {
  if (signal == SIGINT && stop_requested) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  stop_requested = 1;
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a write that is under way goes on
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopSignal::requested() const {
  return stop_requested != 0;
}

}  // namespace tessera

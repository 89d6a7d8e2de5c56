#pragma once

#include <chrono>

namespace tessera {

// How long a rank waits for others before that is an error. The time of operations that are started
// while a FileWork (file_work.h) lives has a limit of its own: a rank that reads or writes files
// may rightly come much later.
struct WaitLimits {
  std::chrono::milliseconds usual{600000};
  std::chrono::milliseconds file_work{3600000};
};

// The time that a polling loop has spent waiting; the loop calls look() many times a second.
// Between two calls at most 0.2 s count: a longer gap is time in which the process did not run
// (stopped by a signal, or its machine suspended). It must not count against the other ranks, which
// most often were stopped as well.
class WaitedTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds the time since the last call, at most 0.2 s of it; returns the sum.
  Clock::duration look() {
    constexpr std::chrono::milliseconds kMostBetweenLooks{200};
    const Clock::time_point now = Clock::now();
    waited_ += now - last_ < kMostBetweenLooks ? now - last_ : kMostBetweenLooks;
    last_ = now;
    return waited_;
  }

 private:
  Clock::time_point last_ = Clock::now();
  Clock::duration waited_{0};
};

}  // namespace tessera

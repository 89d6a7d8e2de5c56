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

// The time that a loop has spent waiting, measured at its looks. Between two looks at most 0.2 s
// counts: loops look many times a second, so what is longer is time in which the process did not
// run (stopped by a signal, or its machine suspended). It is nobody's fault then that others did
// not come, since most often they were stopped as well.
class WaitedTime {
 public:
  using Clock = std::chrono::steady_clock;

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

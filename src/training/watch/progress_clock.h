#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/process/place.h"
#include "config/watchdog_section.h"

namespace tessera {

// How long a rank has made no progress, and how long it may where it is: what `watchdog` of the
// configuration says. Only time in which somebody looks counts: a process that was stopped, or
// whose machine was suspended, has not stood still.
class ProgressClock {
 public:
  explicit ProgressClock(const WatchdogSection& limits) : limits_(limits) {}

  // The rank is at `place`, `seconds` after the last call.
  void look(const PlaceView& place, double seconds);

  double quiet() const { return quiet_; }
  // Seconds; 0: no limit. And the key that says so.
  double limit() const;
  std::string key() const;

 private:
  enum class Kind { kStart, kFirstStep, kStep, kValidation, kSave };
  Kind kind() const;
  double median_step() const;

  const WatchdogSection limits_;
  PlaceView place_;
  double quiet_ = 0.0;
  double in_step_ = 0.0;           // seconds since the step began
  int64_t steps_seen_ = 0;         // that have begun
  std::deque<double> step_times_;  // of the last steps
};

}  // namespace tessera

#include "training/watch/progress_clock.h"

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

// Between two looks at most so much counts (parallel/comm/core/wait_limits.h does the same).
constexpr double kMostBetweenLooks = 0.5;

// Steps whose median is taken, at most and at least. What a step spends in a save or a validation
// is in some of them, and does not move the median.
constexpr size_t kMostSteps = 31, kFewestSteps = 3;

// watchdog.step: auto.
constexpr double kAutoTimes = 20.0, kAutoLeast = 60.0;

}  // namespace

void ProgressClock::look(const PlaceView& place, double seconds) {
  seconds = std::min(seconds, kMostBetweenLooks);
  in_step_ += seconds;
  const bool trains = place.phase >= Phase::kData && place.phase <= Phase::kUpdate;
  if (trains && (place.step != place_.step || steps_seen_ == 0)) {
    // Steps shorter than the time between two looks are not seen one by one; nor do they matter.
    if (steps_seen_ > 0) {
      step_times_.push_back(in_step_);
      if (step_times_.size() > kMostSteps) step_times_.pop_front();
    }
    ++steps_seen_;
    in_step_ = 0.0;
  }
  quiet_ = place.progress == place_.progress ? quiet_ + seconds : 0.0;
  place_ = place;
}

ProgressClock::Kind ProgressClock::kind() const {
  switch (place_.phase) {
    case Phase::kLaunch:
    case Phase::kConnect:
    case Phase::kOpen:
    case Phase::kPlan:
    case Phase::kLoad:
      return Kind::kStart;
    case Phase::kValidate:
      return Kind::kValidation;
    case Phase::kSave:
    case Phase::kClose:
      return Kind::kSave;
    default:
      break;
  }
  const bool known = limits_.step || step_times_.size() >= kFewestSteps;
  return steps_seen_ > 1 && known ? Kind::kStep : Kind::kFirstStep;
}

double ProgressClock::limit() const {
  switch (kind()) {
    case Kind::kStart:
      return static_cast<double>(limits_.start);
    case Kind::kFirstStep:
      return static_cast<double>(limits_.first_step);
    case Kind::kStep:
      if (limits_.step) return static_cast<double>(*limits_.step);
      return std::max(kAutoLeast, kAutoTimes * median_step());
    case Kind::kValidation:
      return static_cast<double>(limits_.validation);
    case Kind::kSave:
      break;
  }
  return static_cast<double>(limits_.save);
}

std::string ProgressClock::key() const {
  switch (kind()) {
    case Kind::kStart:
      return "watchdog.start";
    case Kind::kFirstStep:
      return "watchdog.first_step";
    case Kind::kStep:
      return limits_.step ? "watchdog.step" : "watchdog.step: auto";
    case Kind::kValidation:
      return "watchdog.validation";
    case Kind::kSave:
      break;
  }
  return "watchdog.save";
}

double ProgressClock::median_step() const {
  std::vector<double> times(step_times_.begin(), step_times_.end());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return times.empty() ? 0.0 : *middle;
}

}  // namespace tessera

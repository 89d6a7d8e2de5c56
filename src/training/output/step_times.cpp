#include "training/output/step_times.h"

#include <cmath>

namespace tessera {

// Welford's update: the squares need no second look at the steps, and no difference of large sums.
void StepTimes::add(double step_ms, double tokens_per_s) {
  ++steps_;
  const double distance = step_ms - mean_ms_;
  mean_ms_ += distance / static_cast<double>(steps_);
  squares_ += distance * (step_ms - mean_ms_);
  tokens_ += tokens_per_s * step_ms / 1e3;
}

double StepTimes::mean_ms() const {
  return mean_ms_;
}

double StepTimes::deviation_ms() const {
  return steps_ < 2 ? 0.0 : std::sqrt(squares_ / static_cast<double>(steps_ - 1));
}

double StepTimes::tokens_per_s() const {
  return mean_ms_ > 0.0 ? 1e3 * tokens_ / (mean_ms_ * static_cast<double>(steps_)) : 0.0;
}

}  // namespace tessera

#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

double learning_rate(const ScheduleConfig& schedule, double peak, int64_t total_steps,
                     int64_t step) {
  if (step <=
      schedule.warmup_steps)  // the peak is reached, even if the warm-up takes the whole run
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  if (schedule.type == ScheduleType::kConstant) return peak;
  const auto decay_steps = static_cast<double>(total_steps - schedule.warmup_steps);
  const double progress =
      decay_steps > 0
          ? std::clamp(static_cast<double>(step - schedule.warmup_steps) / decay_steps, 0.0, 1.0)
          : 1.0;
  const double floor = schedule.min_lr_ratio * peak;
  if (progress == 1.0) return floor;
  const double remaining = schedule.type == ScheduleType::kLinear
                               ? 1.0 - progress
                               : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return floor + (peak - floor) * remaining;
}

}  // namespace tessera

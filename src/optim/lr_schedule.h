#pragma once

#include <cstdint>

#include "optim/optimizer_config.h"

namespace tessera {

// The learning rate of update `step` (from 1) of `total_steps`: linear warm-up to `peak` at
// warmup_steps, then constant, linear or cosine decay to min_lr_ratio * peak at total_steps, and
// that for ever after. A function of the step alone, so resuming needs no state.
double learning_rate(const ScheduleConfig& schedule, double peak, int64_t total_steps,
                     int64_t step);

}  // namespace tessera

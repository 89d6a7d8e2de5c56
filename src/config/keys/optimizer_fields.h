#pragma once

#include <vector>

#include "config/keys/fields.h"

namespace tessera {

// The part of describe() that decides how gradients become updates.
Section optimizer_section(OptimizerConfig& config);
Section schedule_section(ScheduleConfig& config);
std::vector<Field> loss_scale_fields(LossScaleConfig& config);  // keys of `precision`

}  // namespace tessera

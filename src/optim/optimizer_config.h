#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct AdamWConfig {
  double lr = 1.0e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.1;  // on matrices only
  bool operator==(const AdamWConfig&) const = default;
};

enum class ScheduleType { kConstant, kLinear, kCosine };

struct ScheduleConfig {
  ScheduleType type = ScheduleType::kCosine;
  int64_t warmup_steps = 0;
  double min_lr_ratio = 0.1;  // lr at and after the last step, as a part of the peak
  bool operator==(const ScheduleConfig&) const = default;
};

}  // namespace tessera

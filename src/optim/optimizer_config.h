#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

enum class OptimizerType { kAdamW, kAdam, kSgd };
enum class MomentsDtype { kFp32, kBf16 };

// Parameters by name that are treated otherwise than the rest.
struct ParameterGroup {
  std::vector<std::string> params = {};  // name patterns (base/text/name_pattern.h)
  double lr_scale = 1.0;                 // times the learning rate of the step
  // Weight decay of every parameter of the group; absent: what each would have without a group.
  std::optional<double> weight_decay = std::nullopt;
  bool frozen = false;
  bool operator==(const ParameterGroup&) const = default;
};

struct OptimizerConfig {
  OptimizerType type = OptimizerType::kAdamW;
  double lr = 1.0e-3;
  double beta1 = 0.9;  // adamw, adam
  double beta2 = 0.95;
  double eps = 1.0e-8;
  double momentum = 0.0;  // sgd
  bool nesterov = false;
  double weight_decay = 0.1;  // on matrices only
  MomentsDtype moments = MomentsDtype::kFp32;
  std::vector<ParameterGroup> groups = {};
  bool operator==(const OptimizerConfig&) const = default;
};

enum class LossScaleMode { kAuto, kDynamic, kStatic };

struct LossScaleConfig {
  LossScaleMode mode = LossScaleMode::kAuto;  // auto: dynamic in fp16, none otherwise
  double value = 1.0;                         // static
  double initial = 65536.0;                   // dynamic
  int64_t growth_interval = 2000;
  int64_t hysteresis = 1;
  bool operator==(const LossScaleConfig&) const = default;
};

enum class ScheduleType { kConstant, kLinear, kCosine };

struct ScheduleConfig {
  ScheduleType type = ScheduleType::kCosine;
  int64_t warmup_steps = 0;
  double min_lr_ratio = 0.1;  // lr at and after the last step, as a part of the peak
  int64_t steps = 0;          // that the schedule spans; 0: auto, training.steps of the first start
  bool operator==(const ScheduleConfig&) const = default;
};

}  // namespace tessera

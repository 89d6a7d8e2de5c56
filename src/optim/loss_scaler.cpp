#include "optim/loss_scaler.h"

#include <algorithm>

namespace tessera {

LossScaler::LossScaler(const LossScaleConfig& config, bool fp16)
    : config_(config),
      dynamic_(config.mode == LossScaleMode::kDynamic ||
               (config.mode == LossScaleMode::kAuto && fp16)),
      enabled_(dynamic_ || config.mode == LossScaleMode::kStatic) {
  if (dynamic_) {
    state_ = {config.initial, 0, config.hysteresis};
  } else if (enabled_) {
    state_.scale = config.value;
  }
}

bool LossScaler::step_was_good() {
  if (!dynamic_ || ++state_.good_steps < config_.growth_interval) return false;
  state_ = {state_.scale * kGrowth, 0, config_.hysteresis};
  return true;
}

bool LossScaler::step_overflowed() {
  if (!dynamic_) return false;
  state_.good_steps = 0;
  state_.hysteresis_left = std::max<int64_t>(state_.hysteresis_left - 1, 0);
  if (state_.hysteresis_left > 0) return false;
  const double before = state_.scale;
  state_.scale = std::max(before * kBackOff, kMin);
  return state_.scale != before;
}

void LossScaler::restore(const LossScaleState& state) {
  if (dynamic_) state_ = state;
}

}  // namespace tessera

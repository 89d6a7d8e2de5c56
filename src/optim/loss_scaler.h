#pragma once

#include <cstdint>

#include "optim/optimizer_config.h"

namespace tessera {

// What a checkpoint holds of a dynamic loss scale.
struct LossScaleState {
  double scale = 1.0;
  int64_t good_steps = 0;       // without overflow since the last change
  int64_t hysteresis_left = 1;  // overflows until the scale is halved
  bool operator==(const LossScaleState&) const = default;
};

// The factor on the loss that keeps fp16 gradients from vanishing (Micikevicius et al. 2018); 1 in
// runs that use none. A dynamic scale halves when a gradient overflows and doubles after
// growth_interval steps without. Hysteresis is Megatron-LM's: the scale is halved from the h-th
// overflow on, and overflows are counted anew once it has grown.
//
// It knows nothing of ranks: the caller reports an overflow once all ranks have agreed on it.
class LossScaler {
 public:
  static constexpr double kMin = 1.0;
  static constexpr double kGrowth = 2.0;
  static constexpr double kBackOff = 0.5;

  LossScaler(const LossScaleConfig& config, bool fp16);

  double scale() const { return state_.scale; }
  bool enabled() const { return enabled_; }
  // Whether an overflow is only a sign that the scale is too large: it is dynamic and above kMin.
  bool explains_overflow() const { return dynamic_ && state_.scale > kMin; }

  // Each returns whether the scale has changed.
  bool step_was_good();
  bool step_overflowed();

  const LossScaleState& state() const { return state_; }
  // Goes on from a saved state; without effect where the scale is not dynamic.
  void restore(const LossScaleState& state);

 private:
  LossScaleConfig config_;
  bool dynamic_;
  bool enabled_;
  LossScaleState state_;
};

}  // namespace tessera

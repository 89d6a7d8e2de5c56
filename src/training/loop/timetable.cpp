#include "training/loop/timetable.h"

namespace tessera {

Timetable::Timetable(const Config& config, bool validates)
    : last_(config.training.steps),
      log_every_(config.training.log_every),
      validate_every_(validates ? config.eval.every : 0),
      save_every_(config.checkpoint.every),
      compare_every_(config.debug.compare_replicas_every),
      stop_after_(config.training.stop_after) {}

bool Timetable::validates(int64_t step) const {
  return validate_every_ > 0 && (is_last(step) || is_due(step, validate_every_));
}

}  // namespace tessera

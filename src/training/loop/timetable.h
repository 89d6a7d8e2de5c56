#pragma once

#include <cstdint>
#include <optional>

#include "config/config.h"

namespace tessera {

// Says after which steps the loop logs, validates, saves or stops: pure arithmetic on the
// configuration. `step`: the number of the step that is done, from 1.
class Timetable {
 public:
  // `validates`: there is validation data.
  Timetable(const Config& config, bool validates);

  int64_t last_step() const { return last_; }
  bool is_last(int64_t step) const { return step >= last_; }
  // A line on the console.
  bool logs(int64_t step) const { return is_due(step, log_every_); }
  // The last step is always saved, and always validated if the run validates at all.
  bool validates(int64_t step) const;
  bool saves(int64_t step) const { return is_last(step) || is_due(step, save_every_); }
  // The run stops here, as asked for by training.stop_after.
  bool stops(int64_t step) const { return step == stop_after_; }
  // Before the update of `step`, ranks compare what they must hold alike.
  bool compares_replicas(int64_t step) const { return is_due(step, compare_every_); }

 private:
  // 0: never.
  static bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

  int64_t last_, log_every_, validate_every_, save_every_, compare_every_;
  std::optional<int64_t> stop_after_;
};

}  // namespace tessera

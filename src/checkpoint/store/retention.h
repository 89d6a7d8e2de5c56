#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera {

// Which checkpoints of a run stay: those that any of the rules keeps.
struct RetentionRules {
  // Not explicit: the newest `keep` alone is what most callers want.
  RetentionRules(int keep_newest, int64_t keep_multiples = 0, int keep_lowest = 0)
      : keep(keep_newest), keep_every(keep_multiples), keep_best(keep_lowest) {}

  int keep;            // so many of the newest; 0: all
  int64_t keep_every;  // for ever those whose step is a multiple of it; 0: none
  int keep_best;       // so many with the lowest validation loss; 0: none
};

// What the rules are applied to.
struct SavedSteps {
  std::vector<int64_t> whole = {};        // steps with a whole checkpoint, in any order
  std::map<int64_t, double> losses = {};  // of validations, by step; also of steps that are gone
  // What the run saved last counts as its newest, whatever its number; and it stays.
  std::optional<int64_t> just_saved;
  // What the run has loaded and not yet saved a newer one of: it stays as well.
  std::optional<int64_t> just_loaded;
};

// The steps whose checkpoints go, rising: pure arithmetic. A loss that is not finite is never among
// the best; of equal losses the newer step is the better one. At least one whole checkpoint stays.
std::vector<int64_t> steps_to_retire(const RetentionRules& rules, const SavedSteps& saved);

}  // namespace tessera

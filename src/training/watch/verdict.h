#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/watch/rank_state.h"

namespace tessera {

// What is wrong with a run that cannot go on, and who is to blame.
struct Verdict {
  enum class Reason { kError, kLostRank, kHang };
  Reason reason = Reason::kHang;
  std::vector<int> ranks = {};  // world ranks at fault; empty: none can be named
  std::string host = {};        // of the first of them; empty: not known
  int64_t step = 0;             // that it was in; 0: none
  int exit_code = 1;
  std::string text = {};  // a few lines, without a line end behind the last
};

// "error", "lost_rank", "hang".
const char* reason_name(Verdict::Reason reason);

// Seconds that a verdict waits for.
struct VerdictRules {
  // After a rank's end: others that end for the same cause are then known as well.
  double settle = 0.3;
  // After errors that only say that others have failed: the cause itself may come later, since a
  // rank frees its memory before it tells its error.
  double cause = 3.0;
  // A connected rank may be silent as long as its phase allows no progress, but no longer than
  // this, since its heartbeat comes from a thread that does nothing else; and not shorter than
  // three heartbeats.
  double silence = 60.0;
  double least_silence = 3.0;
  // Heartbeats are a second old at most: a rank that is so much over its limit is judged together
  // with those that are over theirs by then.
  double skew = 1.2;
};

// The verdict on a run in which ranks stand as told; nullopt while it may go on. `ranks`: all ranks
// of the world, by number. In this order: an error that a rank has told; ranks whose processes are
// gone; ranks that are stopped; ranks that are missing at the start; ranks that make no progress in
// their own work while others wait for them; ranks that have taken different ways through their
// collectives; operations that all have entered and that do not end.
std::optional<Verdict> judge(const std::vector<RankState>& ranks, const VerdictRules& rules = {});

}  // namespace tessera

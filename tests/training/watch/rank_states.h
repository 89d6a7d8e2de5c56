#pragma once

#include <string>
#include <utility>
#include <vector>

#include "training/watch/verdict.h"

namespace tessera {

// A world of ranks in the middle of a run: two to a node (n0, n0, n1, n1, ...), tp 2, each at
// step 812 in the sums over ranks, in all-gather 1042 of "gather", which waits for nobody, and
// silent or without progress for no time.
inline std::vector<RankState> healthy_world(int ranks) {
  std::vector<RankState> all(static_cast<size_t>(ranks));
  std::vector<int> everybody;
  for (int i = 0; i < ranks; ++i) everybody.push_back(i);
  for (int i = 0; i < ranks; ++i) {
    RankState& state = all[static_cast<size_t>(i)];
    state.rank = i;
    state.host = "n" + std::to_string(i / 2);
    state.dp = i / 2;
    state.tp = i % 2;
    state.life = RankState::Life::kLive;
    state.place = {Phase::kSum, 812, -1, 5000};
    state.limit = 60.0;
    state.key = "watchdog.step";
    GroupView group{"gather", everybody, 1042, 1041, {}};
    group.last.push_back({1041, "all-gather", 64, "bf16", OperationView::State::kDone, 0.1, {}});
    group.last.push_back(
        {1042, "all-gather", 64, "bf16", OperationView::State::kRunning, 61.0, {}});
    state.groups.push_back(std::move(group));
  }
  return all;
}

// Nobody has made progress for two seconds longer than allowed.
inline void stand_still(std::vector<RankState>& all) {
  for (RankState& state : all) state.quiet = state.limit + 2.0;
}

// The rank is in work of its own and has done what others have, but for the last operation.
inline void hold_back(RankState& state, PlaceView place) {
  state.place = place;
  state.groups[0].started = 1041;
  state.groups[0].last.pop_back();
}

}  // namespace tessera

#include "doctor/measure/pair_plan.h"

#include <algorithm>

namespace tessera::doctor {
namespace {

// The rounds of a tournament of `players`, by their numbers: each meets each other once.
std::vector<Round> tournament(int players) {
  std::vector<Round> rounds;
  const int places = players + players % 2;  // of an odd number one rests in each round
  for (int turn = 0; turn + 1 < places; ++turn) {
    const auto at = [&](int place) {
      return place == 0 ? 0 : 1 + (place - 1 + turn) % (places - 1);
    };
    Round round;
    for (int place = 0; place < places / 2; ++place) {
      const int a = at(place), b = at(places - 1 - place);
      if (std::max(a, b) < players) round.push_back({std::min(a, b), std::max(a, b)});
    }
    if (!round.empty()) rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace

PairPlan plan_pairs(const std::vector<std::vector<int>>& nodes, int most_rounds) {
  PairPlan plan;
  size_t widest = 0;
  for (const std::vector<int>& ranks : nodes) {
    widest = std::max(widest, ranks.size());
    const std::vector<Round> rounds = tournament(static_cast<int>(ranks.size()));
    if (plan.inside.size() < rounds.size()) plan.inside.resize(rounds.size());
    for (size_t i = 0; i < rounds.size(); ++i)
      for (const auto& [a, b] : rounds[i])
        plan.inside[i].push_back({ranks[static_cast<size_t>(a)], ranks[static_cast<size_t>(b)]});
  }

  std::vector<Round> meetings = tournament(static_cast<int>(nodes.size()));
  const size_t most = static_cast<size_t>(std::max(most_rounds, 1));
  if (meetings.size() > most) {
    meetings.resize(most);
    plan.all_across = false;
  }
  const bool all_ranks = meetings.size() * widest * widest <= most;
  if (!all_ranks && widest > 1) plan.all_across = false;
  const size_t used = all_ranks ? widest : std::min<size_t>(widest, 1);
  for (const Round& meeting : meetings)
    for (size_t i = 0; i < used; ++i)
      for (size_t j = 0; j < used; ++j) {
        Round round;
        for (const auto& [a, b] : meeting) {
          const auto& of_a = nodes[static_cast<size_t>(a)];
          const auto& of_b = nodes[static_cast<size_t>(b)];
          if (i < of_a.size() && j < of_b.size()) round.push_back({of_a[i], of_b[j]});
        }
        if (!round.empty()) plan.across.push_back(std::move(round));
      }
  return plan;
}

}  // namespace tessera::doctor

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "doctor/facts/numbers.h"
#include "doctor/judge/judge.h"

namespace tessera::doctor {
namespace {

// Ranks that share hardware threads with each other, directly or by way of others.
struct Crowd {
  std::vector<int> ranks;
  std::set<int> cores;
  int threads = 0;
};

std::vector<Crowd> crowds_of(const Node& node, const std::vector<RankFacts>& facts) {
  std::vector<Crowd> crowds;
  for (const int rank : node.ranks) {
    const Cores& own = facts[static_cast<size_t>(rank)].cores;
    Crowd crowd{{rank}, {own.bound.begin(), own.bound.end()}, own.threads};
    // Takes in every earlier crowd that it meets.
    for (size_t i = 0; i < crowds.size();) {
      const bool meets = std::any_of(own.bound.begin(), own.bound.end(),
                                     [&](int core) { return crowds[i].cores.contains(core); });
      if (!meets) {
        ++i;
        continue;
      }
      crowd.ranks.insert(crowd.ranks.end(), crowds[i].ranks.begin(), crowds[i].ranks.end());
      crowd.cores.insert(crowds[i].cores.begin(), crowds[i].cores.end());
      crowd.threads += crowds[i].threads;
      crowds.erase(crowds.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::sort(crowd.ranks.begin(), crowd.ranks.end());
    crowds.push_back(std::move(crowd));
  }
  return crowds;
}

std::string cores_text(const std::set<int>& cores) {
  return fmt::format("hardware thread{} {}", cores.size() == 1 ? "" : "s",
                     numbers_text({cores.begin(), cores.end()}));
}

}  // namespace

Findings judge_cores(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes,
                     bool crowded) {
  Findings findings;
  // By what is wrong, so that ranks that are alike are named together.
  std::map<std::pair<int, size_t>, std::vector<int>> too_many;
  for (const RankFacts& rank : facts)
    if (!rank.cores.bound.empty() && rank.cores.threads > static_cast<int>(rank.cores.bound.size()))
      too_many[{rank.cores.threads, rank.cores.bound.size()}].push_back(rank.rank);
  for (const auto& [numbers, ranks] : too_many)
    findings.push_back(
        {Level::kWarning, "cores",
         fmt::format("{} compute{} with {} threads, but may use {} hardware thread{}",
                     ranks_text(ranks), ranks.size() == 1 ? "s" : "", numbers.first, numbers.second,
                     numbers.second == 1 ? "" : "s"),
         fmt::format("OMP_NUM_THREADS={} (or run.threads), or give each rank more: mpirun --map-by "
                     "slot:PE={}, srun --cpus-per-task={}",
                     numbers.second, numbers.first, numbers.first)});

  for (const Node& node : nodes) {
    std::set<int> used, allowed;
    for (const int rank : node.ranks) {
      const Cores& cores = facts[static_cast<size_t>(rank)].cores;
      used.insert(cores.bound.begin(), cores.bound.end());
      allowed.insert(cores.allowed.begin(), cores.allowed.end());
    }
    std::vector<int> idle;
    std::set_difference(allowed.begin(), allowed.end(), used.begin(), used.end(),
                        std::back_inserter(idle));
    for (const Crowd& crowd : crowds_of(node, facts)) {
      if (crowd.ranks.size() < 2 || crowd.threads <= static_cast<int>(crowd.cores.size())) continue;
      if (!idle.empty())
        findings.push_back(
            {Level::kWarning, "cores",
             fmt::format(
                 "{} ({}) are bound to the same {}, {} threads in all, while nobody may use "
                 "{}",
                 ranks_text(crowd.ranks), node.host, cores_text(crowd.cores), crowd.threads,
                 cores_text({idle.begin(), idle.end()})),
             "mpirun --bind-to none or --map-by slot:PE=N; srun --cpus-per-task=N "
             "--cpu-bind=cores; look for a taskset"});
      else if (crowded)
        findings.push_back(
            {Level::kWarning, "cores",
             fmt::format("{} ({}) compute with {} threads on {}", ranks_text(crowd.ranks),
                         node.host, crowd.threads, cores_text(crowd.cores)),
             "start fewer ranks a node, or lower OMP_NUM_THREADS: ranks wait for each other's time "
             "slices"});
    }
  }
  return findings;
}

}  // namespace tessera::doctor

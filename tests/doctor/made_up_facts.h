#pragma once

#include <string>
#include <vector>

#include "doctor/facts/facts.h"
#include "doctor/facts/nodes.h"
#include "doctor/judge/finding.h"

namespace tessera::doctor {

// Healthy nodes n1, n2, ... with two hardware threads for each rank, to which it is bound, on one
// subnet. Ranks are numbered node by node.
inline std::vector<RankFacts> made_up_facts(int nodes, int ranks_per_node) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  std::vector<RankFacts> facts;
  for (int node = 0; node < nodes; ++node)
    for (int local = 0; local < ranks_per_node; ++local) {
      RankFacts rank;
      rank.rank = static_cast<int>(facts.size());
      rank.host = "n" + std::to_string(node + 1);
      rank.kernel_run = "kernel of " + rank.host;
      rank.launcher = "mpirun";
      rank.versions = {{"program", "tessera 0.1.0"}, {"MPI", "Open MPI v4.1.4"}, {"kernel", "6.1"}};
      rank.environment = {{"OMP_NUM_THREADS", "2"}};
      rank.addresses = {{"eth0", "10.0.0." + std::to_string(node + 1), "10.0.0.0/24", 10000}};
      rank.cores.bound = {2 * local, 2 * local + 1};
      for (int core = 0; core < 2 * ranks_per_node; ++core) rank.cores.allowed.push_back(core);
      rank.cores.numa = {0};
      rank.cores.threads = 2;
      rank.memory = {64 * kGiB, 60 * kGiB, kUnlimited, 32 * kGiB, 32 * kGiB};
      rank.limits.files = 65536;
      rank.limits.processes = 100000;
      rank.limits.locked_memory = 8 << 20;
      rank.transports = {"MPI_THREAD_MULTIPLE", {"btl tcp", "pml ob1"}, {}};
      facts.push_back(std::move(rank));
    }
  return facts;
}

// "warning cores: what; next", a line each, for messages and comparisons.
inline std::string text_of(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings)
    text += nlohmann::json(finding.level).get<std::string>() + " " + finding.section + ": " +
            finding.what + "; " + finding.next + "\n";
  return text;
}

}  // namespace tessera::doctor

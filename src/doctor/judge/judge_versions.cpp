#include <fmt/format.h>

#include <set>
#include <string_view>

#include "doctor/judge/judge.h"

namespace tessera::doctor {
namespace {

struct Rule {
  std::string_view name;
  Level level;
  const char* next;
};

constexpr const char* kSameLibraries =
    "use the same on all nodes: ranks that compute the same may get other last bits, and replicas "
    "of a parameter drift apart";
constexpr const char* kHarmless = "nothing needs to be done";

constexpr Rule kRules[] = {
    {"program", Level::kError,
     "start the same program on all nodes, from a folder that they share"},
    {"build", Level::kWarning,
     "start the same program on all nodes, from a folder that they share, or build it again from "
     "the same sources"},
    {"LibTorch", Level::kWarning, kSameLibraries},
    {"MPI", Level::kWarning, "use the same MPI on all nodes: others may not understand each other"},
    {"CUDA", Level::kWarning, kSameLibraries},
    {"NCCL", Level::kWarning, "use the same NCCL on all nodes"},
    {"processor", Level::kOk, "nothing needs to be done, but that slower nodes hold up the others"},
    {"kernels", Level::kWarning,
     "set TESSERA_CPU and ATEN_CPU_CAPABILITY to what all nodes have, or use nodes of one kind: "
     "ranks that compute the same get other last bits"},
    {"kernel", Level::kOk, kHarmless},
    {"glibc", Level::kOk, kHarmless},
    {"CUDA driver", Level::kOk, kHarmless},
};

}  // namespace

Findings judge_versions(const std::vector<RankFacts>& facts) {
  Findings findings;
  for (const Rule& rule : kRules) {
    const std::string name(rule.name);
    const Groups groups = group_ranks(facts, [&](const RankFacts& rank) {
      const auto found = rank.versions.find(name);
      return found == rank.versions.end() ? std::string() : found->second;
    });
    if (groups.size() > 1)
      findings.push_back({rule.level, "versions",
                          fmt::format("{}: {}", name, groups_text(groups, facts)), rule.next});
  }
  return findings;
}

Findings judge_environment(const std::vector<RankFacts>& facts) {
  std::set<std::string> names;
  for (const RankFacts& rank : facts)
    for (const auto& [name, value] : rank.environment) names.insert(name);
  Findings findings;
  for (const std::string& name : names) {
    const Groups groups = group_ranks(facts, [&](const RankFacts& rank) {
      const auto found = rank.environment.find(name);
      return found == rank.environment.end() ? std::string("not set")
                                             : fmt::format("'{}'", found->second);
    });
    if (groups.size() > 1)
      findings.push_back(
          {Level::kWarning, "environment", fmt::format("{}: {}", name, groups_text(groups, facts)),
           fmt::format("set it alike for all ranks (mpirun -x {}, srun --export=ALL), or unset it",
                       name)});
  }
  return findings;
}

}  // namespace tessera::doctor

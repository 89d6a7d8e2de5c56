#include "doctor/start_check.h"

#include <fmt/format.h>

#include "base/error.h"
#include "doctor/judge/judge.h"
#include "doctor/measure/measure.h"
#include "doctor/probes/probes.h"

namespace tessera::doctor {

std::vector<std::string> check_start(Communicator& world, int threads) {
  if (world.size() == 1) return {};
  const std::vector<RankFacts> facts =
      gather_facts(world, collect_facts(world.rank(), threads, Depth::kStart));
  const std::vector<Node> nodes = nodes_of(facts);
  Findings findings;
  const auto add = [&](const Findings& more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  add(judge_versions(facts));
  add(judge_environment(facts));
  add(judge_network(facts, nodes));
  add(judge_cores(facts, nodes, false));
  add(judge_limits(facts, nodes, kSharedWhenStarted));
  if (nodes.size() > 1) add(judge_clocks(measure_clocks(world), facts, nodes));

  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    if (finding.level == Level::kError)
      fail("doctor", "{}: {}; {}", finding.section, finding.what, finding.next);
    if (finding.level == Level::kWarning)
      lines.push_back(fmt::format("{}: {}; {}", finding.section, finding.what, finding.next));
  }
  return lines;
}

}  // namespace tessera::doctor

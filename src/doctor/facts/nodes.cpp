#include "doctor/facts/nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "doctor/facts/numbers.h"

namespace tessera::doctor {

Groups group_ranks(const std::vector<RankFacts>& facts,
                   const std::function<std::string(const RankFacts&)>& value) {
  Groups groups;
  for (const RankFacts& of_rank : facts) {
    const std::string own = value(of_rank);
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return group.first == own; });
    if (found == groups.end())
      groups.push_back({own, {of_rank.rank}});
    else
      found->second.push_back(of_rank.rank);
  }
  return groups;
}

std::vector<Node> nodes_of(const std::vector<RankFacts>& facts) {
  std::vector<Node> nodes;
  for (const auto& [key, ranks] :
       group_ranks(facts, [](const RankFacts& rank) { return rank.host + "\n" + rank.kernel_run; }))
    nodes.push_back({key.substr(0, key.find('\n')), ranks});
  return nodes;
}

std::vector<int> node_of_ranks(const std::vector<Node>& nodes) {
  size_t ranks = 0;
  for (const Node& node : nodes) ranks += node.ranks.size();
  std::vector<int> node_of(ranks);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const int rank : nodes[i].ranks) node_of[static_cast<size_t>(rank)] = static_cast<int>(i);
  return node_of;
}

std::string groups_text(const Groups& groups, const std::vector<RankFacts>& facts) {
  constexpr size_t kMost = 4;
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(groups.size(), kMost); ++i) {
    const auto& [value, ranks] = groups[i];
    std::vector<std::string> hosts;
    for (const int rank : ranks) {
      const std::string& host = facts[static_cast<size_t>(rank)].host;
      if (hosts.empty() || hosts.back() != host) hosts.push_back(host);
    }
    parts.push_back(fmt::format("{} on {} ({}{})", value.empty() ? "none" : value,
                                ranks_text(ranks), hosts[0],
                                hosts.size() == 1 ? "" : " and others"));
  }
  if (groups.size() > kMost) parts.push_back(fmt::format("and {} more", groups.size() - kMost));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace tessera::doctor

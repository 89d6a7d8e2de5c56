#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "doctor/facts/facts.h"

namespace tessera::doctor {

// The ranks that run on one node, in rising order.
struct Node {
  std::string host;
  std::vector<int> ranks;
};

// The nodes in the order of their first ranks. Ranks are on one node if host name and running
// kernel are alike.
std::vector<Node> nodes_of(const std::vector<RankFacts>& facts);

// The index in `nodes` for each rank.
std::vector<int> node_of_ranks(const std::vector<Node>& nodes);

// Every value that ranks have, with the ranks that have it, in the order of their first ranks.
using Groups = std::vector<std::pair<std::string, std::vector<int>>>;
Groups group_ranks(const std::vector<RankFacts>& facts,
                   const std::function<std::string(const RankFacts&)>& value);

// "4.1.4 on ranks 0-3 (n1), 4.1.5 on ranks 4-7 (n2)"; of many values the first four.
std::string groups_text(const Groups& groups, const std::vector<RankFacts>& facts);

}  // namespace tessera::doctor

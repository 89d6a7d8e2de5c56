#pragma once

#include <utility>
#include <vector>

namespace tessera::doctor {

// Pairs of ranks that are measured at the same time: no rank is in two of them.
using Round = std::vector<std::pair<int, int>>;

// Which pairs of ranks are measured, in at most `most_rounds` rounds or about that many.
struct PairPlan {
  std::vector<Round> inside;  // both ranks on one node, all nodes at once
  std::vector<Round> across;  // ranks of two nodes; no node is in two pairs of a round
  bool all_across = true;     // false: of two nodes only their first ranks, or not all nodes
};

// `nodes`: the ranks of each node. Inside a node every rank meets every other once, in the rounds
// of a tournament (circle method: one rank stays, the others move around it). Across nodes, nodes
// meet in the same way; of two nodes that meet, each rank is paired with each of the other, one
// pair at a time, so that a pair has the link between the nodes to itself. If those are more than
// `most_rounds`, only the nodes' first ranks meet; and of so many nodes that these are still too
// many, each meets `most_rounds` others.
PairPlan plan_pairs(const std::vector<std::vector<int>>& nodes, int most_rounds);

}  // namespace tessera::doctor

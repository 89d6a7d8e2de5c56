#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera {

// Who the ranks of a group are: their numbers in the world and the hosts that they run on. Messages
// name ranks by these, since a position in a group says nothing to a reader. Never communicates:
// the hosts are gathered when a world is made.
class RankNames {
 public:
  // A world of `size` ranks whose hosts are not known: threads of one process.
  explicit RankNames(int size);
  // A world with a host for each rank.
  explicit RankNames(std::vector<std::string> hosts);

  // The group of those ranks of this one, in this order.
  std::shared_ptr<const RankNames> part(const std::vector<int>& members) const;

  // By rank in the group.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int world_rank(int rank) const { return world_ranks_.at(static_cast<size_t>(rank)); }
  const std::string& host(int rank) const;  // empty: unknown

  // "rank 3 (n2)"; "rank 3" where the host is not known.
  std::string text(int rank) const;
  // "rank 1 (n1), rank 3 (n2)"; of many the first eight and the number of the others.
  std::string text(const std::vector<int>& ranks) const;

 private:
  RankNames(std::vector<int> world_ranks, std::shared_ptr<const std::vector<std::string>> hosts);

  std::vector<int> world_ranks_;
  std::shared_ptr<const std::vector<std::string>> hosts_;  // by world rank
};

}  // namespace tessera

#pragma once

#include <optional>
#include <vector>

#include "training/watch/rank_state.h"

namespace tessera {

// An operation in which a rank waits for others.
struct Wait {
  size_t rank;  // index in the states
  GroupView group;
  OperationView operation;
  std::vector<int> missing;  // world ranks that have not come to it, in rising order
};

// Two ranks that have started different operations under one number of a group.
struct Mismatch {
  size_t rank, other;  // indices in the states
  GroupView group;
  OperationView operation, other_operation;
};

// Who waits for whom, by what ranks tell of their groups: rank a waits for b where an operation of
// a runs that b has not started. Ranks run one program, so the one that is furthest behind has
// started nothing that another has not, and waits for nobody.
class WaitGraph {
 public:
  // Only ranks that are connected wait. `ranks` outlive the graph.
  explicit WaitGraph(const std::vector<RankState>& ranks);

  // Each rank's first operation that waits for another.
  const std::vector<Wait>& waits() const { return waits_; }
  // The operation in which a rank waits; null: for nobody.
  const Wait* wait_of(size_t rank) const;
  // An operation that most ranks wait for this one in; null: nobody does.
  const Wait* awaits(size_t rank) const;
  // The ranks (indices) that wait in the same operation as `wait`.
  std::vector<size_t> together(const Wait& wait) const;

  // An operation of a rank that runs though every rank of its group has started it.
  std::optional<Wait> common(size_t rank) const;

  // The first number of a group under which ranks have started different operations.
  std::optional<Mismatch> mismatch() const;

 private:
  const std::vector<RankState>& ranks_;
  std::vector<Wait> waits_;
};

}  // namespace tessera

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/core/abort_state.h"
#include "parallel/comm/core/comm_record.h"
#include "parallel/comm/core/group_record.h"
#include "parallel/comm/core/rank_names.h"
#include "parallel/comm/core/wait_limits.h"

namespace tessera {

// What all groups of a rank's world share.
struct WorldState {
  std::shared_ptr<AbortState> abort = std::make_shared<AbortState>();
  std::shared_ptr<CommRecord> record = std::make_shared<CommRecord>();
};

// What the queue of a group, and everyone who waits in it, knows of the group.
struct GroupContext {
  std::string name;
  int rank = 0;  // this one, in the group
  std::shared_ptr<const RankNames> ranks;
  WaitLimits limits;
  WorldState world;
  std::shared_ptr<GroupRecord> record = nullptr;  // null: nobody keeps one

  // "rank 3 (n2)"
  std::string self() const { return ranks->text(rank); }
};

// Of a new group, whose record becomes part of its world's.
inline GroupContext make_group_context(std::string name, int rank,
                                       std::shared_ptr<const RankNames> ranks,
                                       const WaitLimits& limits, const WorldState& world) {
  auto record = world.record->add(name, *ranks);
  return {std::move(name), rank, std::move(ranks), limits, world, std::move(record)};
}

}  // namespace tessera

#include "parallel/comm/core/comm_record.h"

#include <utility>

#include "parallel/comm/core/group_record.h"
#include "parallel/comm/core/rank_names.h"

namespace tessera {

std::vector<GroupView> CommRecord::view() const {
  const std::lock_guard lock(mutex_);
  std::vector<GroupView> views;
  for (const auto& group : groups_)
    if (!group->closed()) views.push_back(group->view());
  return views;
}

std::shared_ptr<GroupRecord> CommRecord::add(std::string group, const RankNames& ranks) {
  auto record = std::make_shared<GroupRecord>(std::move(group), ranks.world_ranks());
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& other) { return other->closed(); });
  groups_.push_back(record);
  return record;
}

}  // namespace tessera

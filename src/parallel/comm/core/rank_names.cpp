#include "parallel/comm/core/rank_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera {
namespace {

std::vector<int> first_ranks(size_t size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

RankNames::RankNames(int size) : RankNames(std::vector<std::string>(static_cast<size_t>(size))) {}

RankNames::RankNames(std::vector<std::string> hosts)
    : world_ranks_(first_ranks(hosts.size())),
      hosts_(std::make_shared<const std::vector<std::string>>(std::move(hosts))) {}

RankNames::RankNames(std::vector<int> world_ranks,
                     std::shared_ptr<const std::vector<std::string>> hosts)
    : world_ranks_(std::move(world_ranks)), hosts_(std::move(hosts)) {}

std::shared_ptr<const RankNames> RankNames::part(const std::vector<int>& members) const {
  std::vector<int> world_ranks;
  world_ranks.reserve(members.size());
  for (const int member : members) world_ranks.push_back(world_rank(member));
  return std::shared_ptr<const RankNames>(new RankNames(std::move(world_ranks), hosts_));
}

const std::string& RankNames::host(int rank) const {
  return hosts_->at(static_cast<size_t>(world_rank(rank)));
}

std::string RankNames::text(int rank) const {
  if (host(rank).empty()) return fmt::format("rank {}", world_rank(rank));
  return fmt::format("rank {} ({})", world_rank(rank), host(rank));
}

std::string RankNames::text(const std::vector<int>& ranks) const {
  constexpr size_t kMost = 8;
  std::string names;
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    names += fmt::format("{}{}", i == 0 ? "" : ", ", text(ranks[i]));
  if (ranks.size() > kMost) names += fmt::format(" and {} more", ranks.size() - kMost);
  return names;
}

}  // namespace tessera

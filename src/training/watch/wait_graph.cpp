#include "training/watch/wait_graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace tessera {
namespace {

bool is_point_to_point(const OperationView& op) {
  return op.kind == "send" || op.kind == "recv";
}

// The group that a thread writes checkpoints in, beside training.
bool is_beside_training(const RankState& state, const GroupView& group) {
  return group.group == "checkpoint" && state.place.phase != Phase::kSave &&
         state.place.phase != Phase::kClose;
}

bool is_same(const GroupView& a, const GroupView& b) {
  return a.group == b.group && a.ranks == b.ranks;
}

// A rank's view of a group that another rank is in as well. Groups of one name and the same ranks
// are told apart by their order.
const GroupView* counterpart(const RankState& of, const RankState& in, size_t group) {
  size_t before = 0;
  for (size_t i = 0; i < group; ++i) before += is_same(of.groups[i], of.groups[group]) ? 1 : 0;
  for (const GroupView& other : in.groups) {
    if (!is_same(other, of.groups[group])) continue;
    if (before-- == 0) return &other;
  }
  return nullptr;
}

// The operation that a group is at: the first that is not done.
const OperationView* running(const GroupView& group) {
  for (const OperationView& op : group.last)
    if (op.state == OperationView::State::kRunning) return &op;
  return nullptr;
}

const OperationView* with_number(const GroupView& group, int64_t number) {
  for (const OperationView& op : group.last)
    if (op.number == number) return &op;
  return nullptr;
}

}  // namespace

WaitGraph::WaitGraph(const std::vector<RankState>& ranks) : ranks_(ranks) {
  std::map<int, size_t> index;
  for (size_t i = 0; i < ranks.size(); ++i) index[ranks[i].rank] = i;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankState& state = ranks[i];
    if (state.life != RankState::Life::kLive) continue;
    for (size_t g = 0; g < state.groups.size(); ++g) {
      const GroupView& group = state.groups[g];
      const OperationView* op = running(group);
      if (op == nullptr || is_beside_training(state, group)) continue;
      std::vector<int> missing;
      if (is_point_to_point(*op)) {
        missing = op->missing;
      } else {
        for (const int other : group.ranks) {
          const auto known = index.find(other);
          if (other == state.rank || known == index.end()) continue;
          // A rank that tells nothing of its groups (its last heartbeat had none) is not known to
          // be missing; one that tells of others has not come to this one.
          const RankState& peer = ranks[known->second];
          if (peer.groups.empty()) continue;
          const GroupView* view = counterpart(state, peer, g);
          if (view == nullptr || view->started < op->number) missing.push_back(other);
        }
        // What the operation itself has found out, where counts say nothing.
        if (missing.empty()) missing = op->missing;
      }
      std::sort(missing.begin(), missing.end());
      if (missing.empty()) continue;
      waits_.push_back({i, group, *op, std::move(missing)});
      break;
    }
  }
}

const Wait* WaitGraph::wait_of(size_t rank) const {
  for (const Wait& wait : waits_)
    if (wait.rank == rank) return &wait;
  return nullptr;
}

const Wait* WaitGraph::awaits(size_t rank) const {
  const Wait* best = nullptr;
  size_t most = 0;
  for (const Wait& wait : waits_) {
    if (!std::binary_search(wait.missing.begin(), wait.missing.end(), ranks_[rank].rank)) continue;
    const size_t count = together(wait).size();
    if (count > most) best = &wait;
    most = std::max(most, count);
  }
  return best;
}

std::vector<size_t> WaitGraph::together(const Wait& wait) const {
  std::vector<size_t> found;
  for (const Wait& other : waits_)
    if (is_same(other.group, wait.group) && other.operation.number == wait.operation.number)
      found.push_back(other.rank);
  return found;
}

std::optional<Wait> WaitGraph::common(size_t rank) const {
  const RankState& state = ranks_[rank];
  for (const GroupView& group : state.groups) {
    const OperationView* op = running(group);
    if (op != nullptr && !is_beside_training(state, group)) return Wait{rank, group, *op, {}};
  }
  return std::nullopt;
}

std::optional<Mismatch> WaitGraph::mismatch() const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].life != RankState::Life::kLive) continue;
    for (size_t g = 0; g < ranks_[i].groups.size(); ++g) {
      const GroupView& group = ranks_[i].groups[g];
      const OperationView* op = running(group);
      if (op == nullptr || is_point_to_point(*op)) continue;
      for (size_t k = 0; k < ranks_.size(); ++k) {
        if (k == i || ranks_[k].life != RankState::Life::kLive) continue;
        const GroupView* view = counterpart(ranks_[i], ranks_[k], g);
        const OperationView* other = view ? with_number(*view, op->number) : nullptr;
        if (other == nullptr || is_point_to_point(*other)) continue;
        if (std::tie(op->kind, op->count, op->dtype) ==
            std::tie(other->kind, other->count, other->dtype))
          continue;
        return Mismatch{i, k, group, *op, *other};
      }
    }
  }
  return std::nullopt;
}

}  // namespace tessera

#include "parallel/comm/core/transport.h"

#include <utility>

#include "base/error.h"
#include "parallel/comm/core/file_work.h"
#include "parallel/comm/core/file_work_limit.h"

namespace tessera {

Watch::Watch(const GroupContext& group, const Operation& op, const std::atomic<bool>& closing)
    : group_(group),
      op_(&op),
      file_work_(op.file_work),
      limit_(file_work_ ? group.limits.file_work : group.limits.usual),
      closing_(closing) {}

Watch::Watch(const GroupContext& group, const char* what, const std::atomic<bool>& closing)
    : group_(group),
      what_(what),
      file_work_(FileWork::in_progress()),
      limit_(file_work_ ? group.limits.file_work : group.limits.usual),
      closing_(closing) {}

std::string Watch::head() const {
  if (op_ == nullptr) return fmt::format("[comm] {}: {} on {}", group_.name, what_, group_.self());
  return fmt::format("[comm] {}: {} #{} on {}", group_.name, op_->text(*group_.ranks),
                     op_->sequence, group_.self());
}

void Watch::note(Awaited awaited, WaitedTime::Clock::duration waited) const {
  next_note_ = waited + kBetweenNotes;
  if (op_ != nullptr && group_.record) group_.record->waits_for(std::move(awaited.ranks));
}

void Watch::raise(Awaited awaited) const {
  const AbortState& abort = *group_.world.abort;
  if (abort.raised()) throw Error(fmt::format("{} was aborted: {}", head(), abort.reason()));
  if (closing_.load(std::memory_order_relaxed))
    throw Error(fmt::format("{} was given up: the communicator is gone", head()));
  const std::string which = file_work_ ? fmt::format(" ({})", kFileWorkLimit) : "";
  const std::string who = awaited.ranks.empty() ? "" : group_.ranks->text(awaited.ranks) + " ";
  const std::string text = fmt::format("{} timed out after {} ms{}: {}{}", head(), limit_.count(),
                                       which, who, awaited.what);
  note(std::move(awaited), limit_);
  throw Error(text);
}

void CollectiveTransport::run(const Operation& op, const Watch& watch) {
  if (op.kind == OperationKind::kBarrier) return barrier(op, watch);
  if (op.count == 0) return;
  switch (op.kind) {
    case OperationKind::kAllGather:
      return all_gather(op, watch);
    case OperationKind::kReduceScatter:
      return reduce_scatter(op, watch);
    case OperationKind::kAllReduce:
      return all_reduce(op, watch);
    case OperationKind::kBroadcast:
      return broadcast(op, watch);
    case OperationKind::kAllToAll:
      return all_to_all(op, watch);
    case OperationKind::kSend:
      return send(op, watch);
    case OperationKind::kRecv:
      return recv(op, watch);
    case OperationKind::kBarrier:
      return;
  }
}

}  // namespace tessera

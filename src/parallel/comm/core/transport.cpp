#include "parallel/comm/core/transport.h"

#include "base/error.h"
#include "parallel/comm/core/file_work.h"
#include "parallel/comm/core/file_work_limit.h"

namespace tessera {

Watch::Watch(const std::string& group, int rank, const Operation& op, const WaitLimits& limits,
             const AbortState& abort, const std::atomic<bool>& closing)
    : group_(group),
      rank_(rank),
      op_(&op),
      file_work_(op.file_work),
      limit_(file_work_ ? limits.file_work : limits.usual),
      abort_(abort),
      closing_(closing) {}

Watch::Watch(const std::string& group, int rank, const char* what, const WaitLimits& limits,
             const AbortState& abort, const std::atomic<bool>& closing)
    : group_(group),
      rank_(rank),
      what_(what),
      file_work_(FileWork::in_progress()),
      limit_(file_work_ ? limits.file_work : limits.usual),
      abort_(abort),
      closing_(closing) {}

std::string Watch::head() const {
  if (op_ == nullptr) return fmt::format("[comm] {}: {} on rank {}", group_, what_, rank_);
  return fmt::format("[comm] {}: {} #{} on rank {}", group_, op_->text(), op_->sequence, rank_);
}

void Watch::raise(const std::string& waiting_for) const {
  if (abort_.raised()) throw Error(fmt::format("{} was aborted: {}", head(), abort_.reason()));
  if (closing_.load(std::memory_order_relaxed))
    throw Error(fmt::format("{} was given up: the communicator is gone", head()));
  const std::string which = file_work_ ? fmt::format(" ({})", kFileWorkLimit) : "";
  throw Error(
      fmt::format("{} timed out after {} ms{}: {}", head(), limit_.count(), which, waiting_for));
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

#include "parallel/comm/core/communicator.h"

#include <utility>

#include "parallel/comm/core/file_work.h"
#include "parallel/comm/core/operation.h"
#include "parallel/comm/core/rank_names.h"

namespace tessera {
namespace {

// The one place where an operation gets its limit of waiting: that of whoever starts it. Decorators
// and queues, whose threads hand it on later, take it as it is.
Work start_now(Communicator& group, Operation op) {
  op.file_work = FileWork::in_progress();
  return group.start(std::move(op));
}

}  // namespace

Communicator::Communicator(int rank, int size, std::string name,
                           std::shared_ptr<const RankNames> ranks)
    : rank_(rank),
      size_(size),
      name_(std::move(name)),
      ranks_(ranks ? std::move(ranks) : std::make_shared<const RankNames>(size)) {}

int Communicator::world_rank(int rank) const {
  return ranks_->world_rank(rank);
}

const std::string& Communicator::host_of(int rank) const {
  return ranks_->host(rank);
}

std::string Communicator::rank_text(int rank) const {
  return ranks_->text(rank);
}

Work Communicator::all_gather(at::Tensor out, at::Tensor in) {
  return start_now(*this, all_gather_operation(*this, std::move(out), std::move(in)));
}

Work Communicator::reduce_scatter(at::Tensor out, at::Tensor in) {
  return start_now(*this, reduce_scatter_operation(*this, std::move(out), std::move(in)));
}

Work Communicator::all_reduce(at::Tensor tensor, ReduceOp op) {
  return start_now(*this, all_reduce_operation(*this, std::move(tensor), op));
}

Work Communicator::broadcast(at::Tensor tensor, int root) {
  return start_now(*this, broadcast_operation(*this, std::move(tensor), root));
}

Work Communicator::all_to_all(at::Tensor out, at::Tensor in) {
  return start_now(*this, all_to_all_operation(*this, std::move(out), std::move(in)));
}

Work Communicator::send(at::Tensor tensor, int destination) {
  return start_now(*this, send_operation(*this, std::move(tensor), destination));
}

Work Communicator::recv(at::Tensor tensor, int source) {
  return start_now(*this, recv_operation(*this, std::move(tensor), source));
}

Work Communicator::barrier() {
  return start_now(*this, Operation{});
}

}  // namespace tessera

#include "parallel/comm/queued_communicator.h"

#include <exception>
#include <utility>

namespace tessera {

QueuedCommunicator::QueuedCommunicator(int rank, int size, std::string name,
                                       const WaitLimits& limits,
                                       std::shared_ptr<Transport> transport,
                                       std::shared_ptr<AbortState> abort)
    : Communicator(rank, size, std::move(name)),
      limits_(limits),
      abort_(std::move(abort)),
      queue_(std::make_shared<OperationQueue>(this->name(), rank, limits, std::move(transport),
                                              abort_)),
      exceptions_at_birth_(std::uncaught_exceptions()) {}

QueuedCommunicator::~QueuedCommunicator() {
  // An unwinding rank must not wait for peers that may never come.
  queue_->close(std::uncaught_exceptions() == exceptions_at_birth_);
}

Work QueuedCommunicator::all_gather(at::Tensor out, at::Tensor in) {
  return queue_->submit(all_gather_operation(*this, std::move(out), std::move(in)));
}

Work QueuedCommunicator::reduce_scatter(at::Tensor out, at::Tensor in) {
  return queue_->submit(reduce_scatter_operation(*this, std::move(out), std::move(in)));
}

Work QueuedCommunicator::all_reduce(at::Tensor tensor, ReduceOp op) {
  return queue_->submit(all_reduce_operation(*this, std::move(tensor), op));
}

Work QueuedCommunicator::broadcast(at::Tensor tensor, int root) {
  return queue_->submit(broadcast_operation(*this, std::move(tensor), root));
}

Work QueuedCommunicator::all_to_all(at::Tensor out, at::Tensor in) {
  return queue_->submit(all_to_all_operation(*this, std::move(out), std::move(in)));
}

Work QueuedCommunicator::send(at::Tensor tensor, int destination) {
  return queue_->submit(send_operation(*this, std::move(tensor), destination));
}

Work QueuedCommunicator::recv(at::Tensor tensor, int source) {
  return queue_->submit(recv_operation(*this, std::move(tensor), source));
}

Work QueuedCommunicator::barrier() {
  return queue_->submit(Operation{});
}

void QueuedCommunicator::abort(const std::string& reason) {
  abort_->raise(reason);
}

}  // namespace tessera

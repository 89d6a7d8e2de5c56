#include "parallel/comm/core/queued_communicator.h"

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

Work QueuedCommunicator::start(Operation op) {
  return queue_->submit(std::move(op));
}

void QueuedCommunicator::abort(const std::string& reason) {
  abort_->raise(reason);
}

}  // namespace tessera

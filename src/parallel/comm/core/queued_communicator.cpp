#include "parallel/comm/core/queued_communicator.h"

#include <exception>
#include <utility>

namespace tessera {

QueuedCommunicator::QueuedCommunicator(const GroupContext& group,
                                       std::shared_ptr<Transport> transport)
    : Communicator(group.rank, static_cast<int>(group.ranks->world_ranks().size()), group.name,
                   group.ranks),
      limits_(group.limits),
      world_(group.world),
      queue_(std::make_shared<OperationQueue>(group, std::move(transport))),
      exceptions_at_birth_(std::uncaught_exceptions()) {}

QueuedCommunicator::~QueuedCommunicator() {
  // An unwinding rank must not wait for peers that may never come.
  queue_->close(std::uncaught_exceptions() == exceptions_at_birth_);
}

Work QueuedCommunicator::start(Operation op) {
  return queue_->submit(std::move(op));
}

void QueuedCommunicator::abort(const std::string& reason) {
  world_.abort->raise(reason);
}

}  // namespace tessera

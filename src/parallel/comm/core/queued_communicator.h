#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "parallel/comm/core/communicator.h"
#include "parallel/comm/core/operation_queue.h"
#include "parallel/comm/core/transport.h"

namespace tessera {

// What the backends have in common: a communicator that puts its operations into the queue of a
// transport. A backend adds split().
class QueuedCommunicator : public Communicator {
 public:
  ~QueuedCommunicator() override;

  Work start(Operation op) override;
  void abort(const std::string& reason) override;
  const std::shared_ptr<AbortState>& abort_state() const override { return abort_; }

 protected:
  QueuedCommunicator(int rank, int size, std::string name, const WaitLimits& limits,
                     std::shared_ptr<Transport> transport, std::shared_ptr<AbortState> abort);

  const WaitLimits& limits() const { return limits_; }

 private:
  WaitLimits limits_;
  std::shared_ptr<AbortState> abort_;
  std::shared_ptr<OperationQueue> queue_;
  int exceptions_at_birth_;
};

}  // namespace tessera

#pragma once

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
  const std::shared_ptr<AbortState>& abort_state() const override { return world_.abort; }
  const std::shared_ptr<CommRecord>& record() const override { return world_.record; }

 protected:
  QueuedCommunicator(const GroupContext& group, std::shared_ptr<Transport> transport);

  const WaitLimits& limits() const { return limits_; }
  const WorldState& world_state() const { return world_; }

 private:
  WaitLimits limits_;
  WorldState world_;
  std::shared_ptr<OperationQueue> queue_;
  int exceptions_at_birth_;
};

}  // namespace tessera

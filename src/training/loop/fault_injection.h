#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// Makes the fault that debug.inject asks for, once, on the rank that it names. The run tells it to
// which moment it has come; on the other ranks and in other runs nothing is done or wrapped.
class FaultInjection {
 public:
  FaultInjection(const std::optional<InjectedFault>& asked, const Communicator& world);

  // The world as the run is to use it: as it is, unless a collective is to go wrong.
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> world) const;

  // The run has come to `moment` of `step` (0 at the start). If the fault is due: throws Error,
  // ends or stops the process; kCollective: what the rank does to the next collective that it
  // starts.
  void reach(FaultMoment moment, int64_t step);

  // What a person should be told of this run; empty: nothing is asked for. The same on all ranks.
  const std::string& warning() const { return warning_; }

 private:
  std::optional<InjectedFault> fault_;  // of this rank
  std::string warning_;
  bool made_ = false;
  // The fault is to be made by the next collective; shared with the communicators.
  std::shared_ptr<std::atomic<bool>> due_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace tessera

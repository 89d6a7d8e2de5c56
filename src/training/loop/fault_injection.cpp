#include "training/loop/fault_injection.h"

#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/exit_codes.h"
#include "parallel/comm/core/faulty_communicator.h"

namespace tessera {
namespace {

const char* moment_text(FaultMoment moment) {
  switch (moment) {
    case FaultMoment::kStart:
      return "at the start";
    case FaultMoment::kData:
      return "before it reads its data";
    case FaultMoment::kCompute:
      return "in its computation";
    case FaultMoment::kCollective:
      return "at its first collective";
    case FaultMoment::kSave:
      return "in its save";
    case FaultMoment::kValidation:
      return "in its validation";
  }
  return "?";
}

const char* deed_text(FaultDeed deed) {
  switch (deed) {
    case FaultDeed::kThrow:
      return "throws an error";
    case FaultDeed::kExit:
      return "exits without a word";
    case FaultDeed::kKill:
      return "kills itself";
    case FaultDeed::kStop:
      return "stops itself (SIGSTOP)";
    case FaultDeed::kSkip:
      return "leaves the operation out";
    case FaultDeed::kResize:
      return "halves the operation's elements";
  }
  return "?";
}

std::string step_text(const InjectedFault& fault) {
  return fault.at == FaultMoment::kStart ? "" : fmt::format(" of step {}", fault.step);
}

// What is done to the process. Skipping and resizing are done to an operation.
void do_to_process(const InjectedFault& fault) {
  switch (fault.deed) {
    case FaultDeed::kThrow:
      fail("inject", "an error {}{}, as debug.inject asks for", moment_text(fault.at),
           step_text(fault));
    case FaultDeed::kExit:
      // Not exit(): the destructors of a process whose threads run on are a fault of another kind.
      std::_Exit(kExitFailed);
    case FaultDeed::kKill:
      std::raise(SIGKILL);
      break;
    case FaultDeed::kStop:
      std::raise(SIGSTOP);
      break;
    case FaultDeed::kSkip:
    case FaultDeed::kResize:
      break;
  }
}

// Its number of elements is halved: the memory of a smaller operation is there.
std::optional<Operation> do_to_collective(const InjectedFault& fault, Operation op) {
  if (fault.deed == FaultDeed::kSkip) return std::nullopt;
  if (fault.deed == FaultDeed::kResize) op.count /= 2;
  do_to_process(fault);
  return op;
}

}  // namespace

FaultInjection::FaultInjection(const std::optional<InjectedFault>& asked,
                               const Communicator& world) {
  if (!asked) return;
  if (asked->rank == world.rank()) fault_ = asked;
  warning_ = fmt::format("debug.inject: {} {}, {}{}; this run is meant to fail",
                         world.rank_text(asked->rank), deed_text(asked->deed),
                         moment_text(asked->at), step_text(*asked));
}

std::unique_ptr<Communicator> FaultInjection::wrap(std::unique_ptr<Communicator> world) const {
  if (!fault_ || fault_->at != FaultMoment::kCollective) return world;
  return make_faulty(std::move(world), [fault = *fault_, due = due_](Operation op) {
    const bool fits = fault.deed != FaultDeed::kResize || op.count >= 2;
    if (!due->load(std::memory_order_relaxed) || !fits) return std::optional(std::move(op));
    due->store(false, std::memory_order_relaxed);
    return do_to_collective(fault, std::move(op));
  });
}

void FaultInjection::reach(FaultMoment moment, int64_t step) {
  if (!fault_ || made_ || fault_->at != moment || fault_->step != step) return;
  made_ = true;
  if (moment == FaultMoment::kCollective)
    due_->store(true, std::memory_order_relaxed);
  else
    do_to_process(*fault_);
}

}  // namespace tessera

#pragma once

#include <memory>

#include "base/process/place.h"
#include "config/config.h"
#include "parallel/comm/core/communicator.h"
#include "training/loop/hooks.h"
#include "training/loop/stop_signal.h"

namespace tessera {

class StartRecord;
class Watchdog;

// Who looks at a rank from outside while it trains. They outlive the call, and each rank has its
// own, also where ranks are threads.
struct Observers {
  Place* place = nullptr;         // told where the rank is; null: nobody asks
  Watchdog* watchdog = nullptr;   // of all ranks; null: none
  StartRecord* record = nullptr;  // told how the start goes; null: nobody asks
};

// Trains as configured, on the ranks of `world`, of which train() takes ownership. `stop_signal`
// belongs to the process: ranks that are threads share it. UserError for what is wrong with the
// configuration, the data or a checkpoint, Error for other failures. A stop that is asked for
// before the loop begins returns kStoppedAfterSave. How the start ends is recorded in
// RUN/logs/outcome.json (StartRecord), also where it throws. Collective.
TrainOutcome train(const Config& config, std::unique_ptr<Communicator> world,
                   const StopSignal& stop_signal, const TrainHooks& hooks = {},
                   const Observers& observers = {});

}  // namespace tessera

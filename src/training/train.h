#pragma once

#include <memory>

#include "config/config.h"
#include "parallel/comm/core/communicator.h"
#include "training/loop/hooks.h"
#include "training/loop/stop_signal.h"

namespace tessera {

// Trains as configured, on the ranks of `world` (which train() takes over). `stop_signal` is the
// process's: ranks that are threads share it. Collective.
TrainOutcome train(const Config& config, std::unique_ptr<Communicator> world,
                   const StopSignal& stop_signal, const TrainHooks& hooks = {});

}  // namespace tessera

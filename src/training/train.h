#pragma once

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "parallel/comm/communicator.h"

namespace tessera {

enum class TrainOutcome { kDone, kStoppedAfterSave };

// Trains as configured, on the ranks of `world` (which train() takes over). Collective.
TrainOutcome train(const Config& config, std::unique_ptr<Communicator> world);

}  // namespace tessera

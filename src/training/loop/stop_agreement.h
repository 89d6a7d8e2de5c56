#pragma once

#include "parallel/comm/core/communicator.h"
#include "training/loop/stop_signal.h"

namespace tessera {

// Whether any rank was asked to stop. Collective: all ranks get the same answer.
bool stop_agreed(Communicator& world, const StopSignal& stop_signal);

// Throws StopRequested on all ranks if any was asked to stop. Collective; for work outside the
// loop, where others may be busy with files.
void throw_if_stop_agreed(Communicator& world, const StopSignal& stop_signal);

}  // namespace tessera

#pragma once

#include "parallel/comm/core/communicator.h"
#include "training/loop/stop_signal.h"

namespace tessera {

// Whether any rank was asked to stop. Collective: all ranks get the same answer.
bool stop_agreed(Communicator& world, const StopSignal& stop_signal);

// Throws StopRequested on all ranks if any was asked to stop. Collective; for the work before the
// loop, where other ranks may be busy with files: waits as long as file work may take.
void throw_if_stop_agreed(Communicator& world, const StopSignal& stop_signal);

}  // namespace tessera

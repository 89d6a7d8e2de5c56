#pragma once

#include <cstdint>

namespace tessera {

// Bytes that processes here can still allocate without swapping, as the kernel estimates it, within
// the limit of this process's control group (a container's or a Slurm job's). 0 if it cannot be
// found out.
int64_t available_memory();

}  // namespace tessera

#pragma once

#include <cstddef>
#include <functional>

namespace tessera {

// How many hardware threads this process may use: those of its affinity mask, which batch systems
// and taskset set.
int usable_cores();

// Does the work items 0 to count - 1 on at most `threads` threads, the caller's among them. Each
// thread calls `make_worker` once, for files and buffers of its own, and what it returns for one
// item after another, in rising order as threads get free. Returns when all are done. What a worker
// throws ends the work and is thrown here; of several such items the lowest decides, so the error
// does not depend on the number of threads.
using Worker = std::function<void(size_t item)>;
void share_out(size_t count, int threads, const std::function<Worker()>& make_worker);

}  // namespace tessera

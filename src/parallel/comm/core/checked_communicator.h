#pragma once

#include "parallel/comm/core/communicator.h"

namespace tessera {

// Wraps a communicator: before each operation all ranks compare operation, dtype, count, root and
// sequence number. A mismatch is an Error on every rank that lists who called what, in place of a
// hang or of wrong numbers. Costs one small collective per operation; for debugging and tests.
// split() gives checked communicators again.
std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner);

}  // namespace tessera

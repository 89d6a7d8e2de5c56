#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "parallel/comm/core/communicator.h"
#include "parallel/comm/core/operation.h"

namespace tessera {

// Called with each collective that this rank is about to start in a group of several ranks; what it
// returns is started in its place, nothing for nullopt. It may throw. The calls come from the
// thread that uses the group.
using CollectiveFault = std::function<std::optional<Operation>(Operation)>;

// Wraps a communicator so that one rank can be made to do wrong, which shows what the others then
// say. split() gives such communicators again; host_group(), whose operations run beside those of
// the others, does not.
std::unique_ptr<Communicator> make_faulty(std::unique_ptr<Communicator> inner,
                                          CollectiveFault fault);

}  // namespace tessera

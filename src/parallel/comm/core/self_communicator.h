#pragma once

#include "parallel/comm/core/communicator.h"

namespace tessera {

// A world of one: every collective is the identity (a copy where out is not in), done at once.
std::unique_ptr<Communicator> make_self_communicator(std::string name = "self");

}  // namespace tessera

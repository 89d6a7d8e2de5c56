#pragma once

#include "parallel/comm/mpi/mpi_communicator.h"

namespace tessera::testing {

// The runtime that mpi_main.cpp keeps for the whole program; tests make their worlds from it.
MpiRuntime& mpi_runtime();

}  // namespace tessera::testing

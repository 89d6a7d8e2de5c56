#pragma once

#include <optional>

namespace tessera {

// What the launcher (mpirun, or srun with PMIx) tells this process before MPI starts, so that a
// wrong configuration is found and reported once, without MPI.
struct LaunchEnvironment {
  int rank = 0;
  std::optional<int> ranks;  // unset: not told, or not launched at all

  static LaunchEnvironment read();
};

}  // namespace tessera

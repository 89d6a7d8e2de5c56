#pragma once

#include <chrono>
#include <memory>

#include "parallel/comm/communicator.h"

namespace tessera {

// MPI for the life of this object: MPI_Init_thread (MPI_THREAD_MULTIPLE, an Error if not provided)
// and MPI_Finalize. On the error path call abort(): a rank that unwinds must not wait for peers.
class MpiRuntime {
 public:
  MpiRuntime(int* argc, char*** argv);
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  // True when mpirun, srun or another MPI or PMIx launcher started this process.
  static bool launched();

  [[noreturn]] void abort(int exit_code);
};

struct MpiOptions {
  // Every wait, in MPI and in shared memory, ends with an Error after this long.
  std::chrono::milliseconds timeout{600000};
  // Ranks of one node exchange CPU tensors through a shared-memory window (see shm_transport.h).
  bool shared_memory = true;
  // Bytes of the window per rank and communicator; larger tensors go through it in chunks.
  int64_t window_bytes = int64_t{4} << 20;
};

// All ranks of MPI_COMM_WORLD. The runtime outlives it and everything split from it.
std::unique_ptr<Communicator> make_mpi_world(MpiRuntime& runtime, MpiOptions options = {});

}  // namespace tessera

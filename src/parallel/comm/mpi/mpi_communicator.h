#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/error.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

class MpiResources;

// MPI runs for the life of this object: the constructor calls MPI_Init_thread (Error if
// MPI_THREAD_MULTIPLE is not provided), the destructor MPI_Finalize, which waits for all ranks (not
// while an exception unwinds). After an error call abort() instead: a rank that unwinds must not
// wait for peers. Throws Error if the launcher announced several ranks but MPI sees one (srun
// without matching PMI); TESSERA_ALLOW_SINGLE_RANK=1 in the environment permits it.
class MpiRuntime {
 public:
  MpiRuntime(int* argc, char*** argv);
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  // True when mpirun, srun or another MPI or PMIx launcher started this process.
  static bool launched();

  // This rank's number among those that share its node, and how many they are. Collective over all
  // ranks.
  struct NodePlace {
    int rank;
    int ranks;
  };
  NodePlace node_place() const;

  // Whether a rank refuses to train because of an error that it found before MPI started.
  // Collective over all ranks, before anything else: each gives its exit code, 0 if it found none.
  // nullopt: nobody refuses; else the first rank that does.
  struct Refusal {
    int rank;
    int code;
    bool ours;  // this rank is the one
  };
  std::optional<Refusal> find_refusal(int code) const;

  // Ends the whole job, without a word: whoever calls this has said why. Its exit code is
  // `exit_code`.
  [[noreturn]] void abort(int exit_code);

  // MPI objects that are freed at the end of the run (mpi_resources.h); for the backend only.
  MpiResources& resources() { return *resources_; }

 private:
  std::unique_ptr<MpiResources> resources_;
};

struct MpiOptions {
  // Every wait, in MPI and in shared memory, ends with an Error after this long, or after
  // file_timeout where it may be for a rank at work on files (file_work.h).
  std::chrono::milliseconds timeout{600000};
  std::chrono::milliseconds file_timeout{3600000};
  // Ranks of one node exchange CPU tensors through a shared-memory window (see shm_transport.h).
  // SharedMemoryFull if /dev/shm cannot hold the windows.
  bool shared_memory = true;
  // Bytes of the window per rank and communicator; larger tensors go through it in chunks.
  int64_t window_bytes = int64_t{1} << 20;
  // MPI messages are split into pieces of at most this many bytes: MPI counts are int.
  int64_t message_bytes = int64_t{1} << 30;
};

// The windows of a node's ranks do not fit into its shared memory.
class SharedMemoryFull : public Error {
 public:
  using Error::Error;
};

// All ranks of MPI_COMM_WORLD. The runtime outlives it and everything split from it.
std::unique_ptr<Communicator> make_mpi_world(MpiRuntime& runtime, MpiOptions options = {});

}  // namespace tessera

#include <mpi.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/comm/mpi/mpi_resources.h"

// What MPI_Abort of Open MPI calls after it has printed a box of text below the one line that says
// what is wrong (the launcher prints the box; where srun is the launcher, the process itself). It
// is in no header, and other MPIs lack it: hence weak.
extern "C" int ompi_mpi_abort(MPI_Comm comm, int exit_code) __attribute__((weak));

namespace tessera {
namespace {

int number_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::atoi(value);
}

// srun with a PMI plug-in that MPI does not understand starts every task as rank 0 of a world of
// one; N trainings would then write over each other.
void check_world_is_whole() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 1 || std::getenv("TESSERA_ALLOW_SINGLE_RANK") != nullptr) return;
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    const int expected = number_in_environment(name);
    if (expected == 1) return;
    if (expected > 1)
      fail("comm",
           "MPI sees a world of 1 rank, but {}={}: this launcher's PMI does not reach MPI; start "
           "with `srun --mpi=pmix` or mpirun, or set TESSERA_ALLOW_SINGLE_RANK=1 if one rank is "
           "meant",
           name, expected);
  }
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("comm", "{} failed: {}", call, std::string(text, static_cast<size_t>(length)));
}

void MpiResources::add(MPI_Comm comm) {
  std::lock_guard lock(mutex_);
  entries_.push_back({comm, MPI_WIN_NULL});
}

void MpiResources::add(MPI_Win window) {
  std::lock_guard lock(mutex_);
  entries_.push_back({MPI_COMM_NULL, window});
}

void MpiResources::free_all() {
  int keep = lease_.use_count() > 1 ? 1 : 0;
  int any = 0;
  if (MPI_Allreduce(&keep, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD) != MPI_SUCCESS || any) return;
  for (Entry& entry : entries_) {
    if (entry.window != MPI_WIN_NULL) MPI_Win_free(&entry.window);
    if (entry.comm != MPI_COMM_NULL) MPI_Comm_free(&entry.comm);
  }
  entries_.clear();
}

MpiRuntime::MpiRuntime(int* argc, char*** argv) : resources_(std::make_unique<MpiResources>()) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  try {
    if (provided != MPI_THREAD_MULTIPLE)
      fail("comm",
           "MPI provides thread level {}, but MPI_THREAD_MULTIPLE ({}) is needed; use an MPI that "
           "was built with it",
           provided, static_cast<int>(MPI_THREAD_MULTIPLE));
    check_world_is_whole();
  } catch (...) {
    // Every rank sees the same here, so ending MPI blocks nobody.
    MPI_Finalize();
    throw;
  }
}

MpiRuntime::~MpiRuntime() {
  // MPI_Finalize waits for all ranks. A rank that unwinds leaves that to its launcher, which ends
  // the job when the process goes.
  if (std::uncaught_exceptions() > 0) return;
  resources_->free_all();
  MPI_Finalize();
}

bool MpiRuntime::launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                           "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (std::getenv(name) != nullptr) return true;
  // Tasks of srun, whichever plug-in started them; a batch script itself has no SLURM_STEP_ID > 0
  // but does carry SLURM_PROCID, and with several tasks it is a mistake to start only one.
  return std::getenv("SLURM_PROCID") != nullptr && number_in_environment("SLURM_NTASKS") > 1;
}

MpiRuntime::NodePlace MpiRuntime::node_place() const {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  NodePlace place{};
  MPI_Comm_rank(node, &place.rank);
  MPI_Comm_size(node, &place.ranks);
  MPI_Comm_free(&node);
  return place;
}

std::optional<MpiRuntime::Refusal> MpiRuntime::find_refusal(int code) const {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> codes(static_cast<size_t>(size));
  check_mpi(MPI_Allgather(&code, 1, MPI_INT, codes.data(), 1, MPI_INT, MPI_COMM_WORLD),
            "MPI_Allgather");
  for (int other = 0; other < size; ++other)
    if (const int its = codes[static_cast<size_t>(other)]; its != 0)
      return Refusal{other, its, other == rank};
  return std::nullopt;
}

void MpiRuntime::abort(int exit_code) {
  if (&ompi_mpi_abort != nullptr) ompi_mpi_abort(MPI_COMM_WORLD, exit_code);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::abort();  // not reached
}

}  // namespace tessera

#include "parallel/comm/mpi/mpi_communicator.h"

#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/free_space.h"
#include "base/process/host_name.h"
#include "parallel/comm/core/queued_communicator.h"
#include "parallel/comm/core/self_group.h"
#include "parallel/comm/mpi/mpi_resources.h"
#include "parallel/comm/mpi/mpi_transport.h"
#include "parallel/comm/shm/shm_transport.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 64;
constexpr const char* kSharedFolder = "/dev/shm";  // where MPI puts shared windows

// What all groups of one world have in common.
struct World {
  MpiResources* resources;
  MpiOptions options;
  WorldState state;
  std::shared_ptr<void> lease;
};

MPI_Comm node_of(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  return node;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

int rank_of(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

// Bytes that are left in the folder of shared memory; the largest number if it has no limit.
int64_t free_shared_memory() {
  return free_bytes(kSharedFolder).value_or(std::numeric_limits<int64_t>::max());
}

[[noreturn]] void refuse_window(const std::string& name, int64_t wanted, int64_t there) {
  throw SharedMemoryFull(fmt::format(
      "[comm] {}: {} bytes of shared memory are needed on this node, but {} has only {} "
      "bytes free; enlarge it (docker run --shm-size=1g) or let ranks exchange messages",
      name, wanted, kSharedFolder, there));
}

// Collective over a communicator of one node: an Error on all ranks if the `bytes` of all of them
// together do not fit. Windows are sparse files: without this a rank would die of SIGBUS when it
// touches a page that is not there (containers often have 64 MB).
void check_space(MPI_Comm node, const std::string& name, int64_t bytes) {
  int64_t wanted = 0;
  check_mpi(MPI_Allreduce(&bytes, &wanted, 1, MPI_INT64_T, MPI_SUM, node), "MPI_Allreduce");
  int64_t there = free_shared_memory();
  check_mpi(MPI_Bcast(&there, 1, MPI_INT64_T, 0, node), "MPI_Bcast");
  if (wanted > there) refuse_window(name, wanted, there);
}

// Makes the system provide the pages of a mapping now; false if the memory behind it is used up.
// Kernels before 5.14 cannot do that: then true, and check_space() is the only protection.
bool populate(std::byte* data, int64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) != 0)
    return errno == EINVAL;
#else
  (void)data;
  (void)bytes;
#endif
  return true;
}

// Collective over a communicator of one node: `bytes` on each rank, readable by all; the first
// `cleared` bytes are zero.
std::vector<std::byte*> allocate_window(MPI_Comm comm, const std::string& name, int64_t bytes,
                                        int64_t cleared, MpiResources& resources) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");  // each segment near its rank
  void* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const int code = MPI_Win_allocate_shared(bytes + kAlignment, 1, info, comm,
                                           static_cast<void*>(&base), &window);
  MPI_Info_free(&info);
  if (code != MPI_SUCCESS) refuse_window(name, bytes * size_of(comm), free_shared_memory());
  resources.add(window);
  std::vector<std::byte*> segments;
  for (int r = 0; r < size_of(comm); ++r) {
    MPI_Aint size = 0;
    int unit = 0;
    void* segment = nullptr;
    check_mpi(MPI_Win_shared_query(window, r, &size, &unit, static_cast<void*>(&segment)),
              "MPI_Win_shared_query");
    // Mappings start at pages, so rounding up gives the same place in every process.
    const auto address = reinterpret_cast<uintptr_t>(segment);
    segments.push_back(static_cast<std::byte*>(segment) +
                       (kAlignment - address % kAlignment) % kAlignment);
  }
  std::byte* const own = segments[rank_of(comm)];
  int fits = populate(own, bytes) ? 1 : 0;
  if (fits) std::memset(own, 0, static_cast<size_t>(cleared));
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &fits, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  if (!fits) refuse_window(name, bytes * size_of(comm), free_shared_memory());
  return segments;
}

// The communicator of `comm`, which it takes over; `comm` is a part of `parent` or all of it.
// Collective over `parent`.
std::unique_ptr<Communicator> make_group(MPI_Comm comm, MPI_Comm parent, std::string name,
                                         std::shared_ptr<const RankNames> ranks,
                                         const World& world);

class MpiCommunicator final : public QueuedCommunicator {
 public:
  MpiCommunicator(MPI_Comm comm, std::string name, std::shared_ptr<const RankNames> ranks,
                  const World& world, std::shared_ptr<Transport> transport, bool one_node)
      : QueuedCommunicator(
            make_group_context(std::move(name), rank_of(comm), std::move(ranks),
                               {world.options.timeout, world.options.file_timeout}, world.state),
            std::move(transport)),
        comm_(comm),
        world_(world),
        one_node_(one_node) {}

  bool on_one_node() const override { return one_node_; }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    check_color(*this, color);
    // Runs after all that is queued, and with a time-out, which MPI_Comm_split has not: afterwards
    // every rank is known to be here.
    const SplitPlace place = find_split_place(*this, color, key);
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
    return make_group(part, comm_, std::move(name), rank_names()->part(place.members), world_);
  }

 private:
  MPI_Comm comm_;
  World world_;
  bool one_node_;
};

std::unique_ptr<Communicator> make_group(MPI_Comm comm, MPI_Comm parent, std::string name,
                                         std::shared_ptr<const RankNames> ranks,
                                         const World& world) {
  const int64_t window = world.options.window_bytes;
  const int64_t segment = ShmTransport::segment_bytes(size_of(comm), window);
  MPI_Comm node = node_of(comm);
  const bool one_node = size_of(node) == size_of(comm);
  MPI_Comm_free(&node);
  const bool shared = world.options.shared_memory && one_node && size_of(comm) > 1;
  if (world.options.shared_memory) {
    if (shared) ShmTransport::check_window(name, size_of(comm), window);
    // Over the parent, since its other parts on this node get their windows at the same time.
    node = node_of(parent);
    check_space(node, name, shared ? segment : 0);
    MPI_Comm_free(&node);
  }
  if (size_of(comm) == 1) {
    MPI_Comm_free(&comm);
    return make_self_communicator(std::move(name), world.state, std::move(ranks));
  }
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  world.resources->add(comm);
  std::shared_ptr<Transport> transport;
  if (shared) {
    auto segments = allocate_window(comm, name, segment, ShmTransport::control_bytes(size_of(comm)),
                                    *world.resources);
    transport =
        std::make_shared<ShmTransport>(rank_of(comm), std::move(segments), window, world.lease);
  } else {
    transport = std::make_shared<MpiTransport>(comm, world.options.message_bytes, world.lease);
  }
  return std::make_unique<MpiCommunicator>(comm, std::move(name), std::move(ranks), world,
                                           std::move(transport), one_node);
}

// Collective: the name of every rank's host.
std::shared_ptr<const RankNames> gather_rank_names(MPI_Comm comm) {
  constexpr int kBytes = 128;
  std::array<char, kBytes> own{};
  host_name().copy(own.data(), kBytes - 1);
  std::vector<std::array<char, kBytes>> all(static_cast<size_t>(size_of(comm)));
  check_mpi(MPI_Allgather(own.data(), kBytes, MPI_BYTE, all.data(), kBytes, MPI_BYTE, comm),
            "MPI_Allgather");
  std::vector<std::string> hosts;
  for (const auto& name : all) hosts.emplace_back(name.data());
  return std::make_shared<const RankNames>(std::move(hosts));
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_world(MpiRuntime& runtime, MpiOptions options) {
  if (options.message_bytes < 1 || options.message_bytes > INT_MAX)
    fail("comm", "message_bytes is {}; it must be from 1 to {}", options.message_bytes, INT_MAX);
  MpiResources& resources = runtime.resources();
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  auto ranks = gather_rank_names(comm);
  // One abort flag per node, in shared memory whatever the options say.
  WorldState state;
  if (size_of(comm) > 1) {
    MPI_Comm node = node_of(comm);
    MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
    const auto segments =
        allocate_window(node, "world", sizeof(AbortWords), sizeof(AbortWords), resources);
    state.abort = std::make_shared<AbortState>(reinterpret_cast<AbortWords*>(segments[0]));
    resources.add(node);
  }
  return make_group(comm, comm, "world", std::move(ranks),
                    World{&resources, options, std::move(state), resources.lease()});
}

}  // namespace tessera

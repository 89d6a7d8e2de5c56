// Times the collectives of a communicator, and Open MPI's own beside them, on the ranks of mpirun:
//
//   mpirun --oversubscribe --bind-to none -n 4 build/release/comm_bandwidth [--messages]
//   [WINDOW_BYTES]
//
// "bytes" is the small side: all_gather's input and reduce_scatter's output per rank, all_reduce's
// tensor. GB/s counts size x bytes for the first two and bytes for all_reduce, per rank and second.
#include <ATen/ATen.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "parallel/comm/mpi/mpi_communicator.h"

namespace {

// Median over rounds, in microseconds, of the slowest rank.
double time_us(const std::function<void()>& body, int rounds) {
  std::vector<double> times;
  for (int i = 0; i < rounds + 2; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    body();
    double us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i >= 2) times.push_back(us);  // the first rounds touch fresh pages
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  tessera::MpiRuntime runtime(&argc, &argv);
  tessera::MpiOptions options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--messages") == 0)
      options.shared_memory = false;
    else
      options.window_bytes = std::atoll(argv[i]);
  }
  const auto world = tessera::make_mpi_world(runtime, options);
  const int64_t ranks = world->size();
  if (world->rank() == 0)
    std::printf("%d ranks, %s\n%-15s %10s %12s %8s %12s %8s\n", world->size(),
                options.shared_memory ? "shared memory" : "messages", "operation", "bytes",
                "ours us", "GB/s", "Open MPI us", "GB/s");
  const auto report = [&](const char* name, int64_t bytes, int64_t moved, double ours, double mpi) {
    if (world->rank() != 0) return;
    const double scale = static_cast<double>(moved) / 1e3;
    std::printf("%-15s %10lld %12.0f %8.2f %12.0f %8.2f\n", name, static_cast<long long>(bytes),
                ours, scale / ours, mpi, scale / mpi);
    std::fflush(stdout);
  };
  for (const int64_t bytes : {64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20}) {
    const int64_t n = bytes / 4;
    const int rounds = bytes > (4 << 20) ? 3 : 15;
    const auto small = at::ones({n}), large = at::ones({n * ranks});
    const int count = static_cast<int>(n);
    float* const s = small.mutable_data_ptr<float>();
    float* const l = large.mutable_data_ptr<float>();

    double ours = time_us([&] { world->all_gather(large, small).wait(); }, rounds);
    double mpi = time_us(
        [&] { MPI_Allgather(s, count, MPI_FLOAT, l, count, MPI_FLOAT, MPI_COMM_WORLD); }, rounds);
    report("all_gather", bytes, bytes * ranks, ours, mpi);

    ours = time_us([&] { world->reduce_scatter(small, large).wait(); }, rounds);
    mpi = time_us(
        [&] { MPI_Reduce_scatter_block(l, s, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }, rounds);
    report("reduce_scatter", bytes, bytes * ranks, ours, mpi);

    ours = time_us([&] { world->all_reduce(small, tessera::ReduceOp::kSum).wait(); }, rounds);
    mpi = time_us(
        [&] { MPI_Allreduce(MPI_IN_PLACE, s, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }, rounds);
    report("all_reduce", bytes, bytes, ours, mpi);
  }
  return 0;
}

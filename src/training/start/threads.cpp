#include "training/start/threads.h"

#include <ATen/Parallel.h>

#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/process/start_thread.h"
#include "kernels/parallel.h"

namespace tessera {
namespace {

// Threads that all live until this goes. They do nothing.
class IdleThreads {
 public:
  IdleThreads(int count, const std::string& purpose) {
    threads_.reserve(static_cast<size_t>(count));
    try {
      for (int i = 0; i < count; ++i)
        threads_.push_back(start_thread(purpose, [this] { end_.wait(); }));
    } catch (...) {
      join();
      throw;
    }
  }
  ~IdleThreads() { join(); }
  IdleThreads(const IdleThreads&) = delete;
  IdleThreads& operator=(const IdleThreads&) = delete;

 private:
  void join() {
    end_.count_down();
    for (std::thread& thread : threads_) thread.join();
  }

  std::latch end_{1};
  std::vector<std::thread> threads_;
};

}  // namespace

// Where a thread cannot be made, LibTorch's own pool waits for it for ever and OpenMP's ends the
// process. So as many as the run may have are made before, on all ranks at a time, since a user's
// limit is for all processes together. Each thread that computes has a team of OpenMP's: this one,
// and with other ranks the workers of the groups that reduce (parallel/mesh.h).
void start_threads(int threads, Communicator& world) {
  if (threads > 1) {
    const int teams = world.size() == 1 ? 1 : 4;
    const IdleThreads trial((teams + 1) * (threads - 1), "computation (run.threads)");
    world.barrier().wait();
  }
  at::set_num_threads(threads);
  kernels::for_ranges(threads, 1, [](int64_t, int64_t) {});  // makes the team of this thread
}

}  // namespace tessera

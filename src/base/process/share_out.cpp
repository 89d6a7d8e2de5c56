#include "base/process/share_out.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/process/start_thread.h"

namespace tessera {
namespace {

class SharedWork {
 public:
  SharedWork(size_t count, const std::function<Worker()>& make_worker)
      : count_(count), make_worker_(make_worker) {}

  void run() {
    size_t item = 0;
    try {
      const Worker work = make_worker_();
      // Items are taken in rising order: when one fails, those below it are done or at work.
      while (!failed_ && (item = next_++) < count_) work(item);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failed_ || item < failed_item_) {
        failed_item_ = item;
        error_ = std::current_exception();
      }
      failed_ = true;
    }
  }

  void give_up() { failed_ = true; }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const size_t count_;
  const std::function<Worker()>& make_worker_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  size_t failed_item_ = 0;
  std::exception_ptr error_;
};

}  // namespace

int usable_cores() {
  // The kernel's mask may be larger than cpu_set_t, whose 1024 bits are tried first.
  for (int most = 1024; most <= 1 << 20; most *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<size_t>(most));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    const bool known = mask != nullptr && sched_getaffinity(0, bytes, mask) == 0;
    const int cores = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (cores > 0) return cores;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void share_out(size_t count, int threads, const std::function<Worker()>& make_worker) {
  SharedWork work(count, make_worker);
  std::vector<std::thread> others;
  const auto join = [&] {
    for (std::thread& other : others) other.join();
  };
  const size_t wanted = std::min(count, static_cast<size_t>(std::max(threads, 1)));
  try {
    while (others.size() + 1 < wanted)
      others.push_back(
          start_thread("the work on a checkpoint (--threads)", [&work] { work.run(); }));
  } catch (...) {
    work.give_up();
    join();
    throw;
  }
  work.run();
  join();
  work.rethrow();
}

}  // namespace tessera

#include "parallel/comm/nccl/nccl_watch.h"

#include <chrono>
#include <utility>

#include "base/process/start_thread.h"

namespace tessera {

NcclWatch::NcclWatch(const Device& device)
    : device_(device), thread_(start_thread("the watch over NCCL", [this] { watch(); })) {}

NcclWatch::~NcclWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void NcclWatch::add(std::weak_ptr<NcclQueue> queue) {
  std::lock_guard lock(mutex_);
  queues_.push_back(std::move(queue));
}

void NcclWatch::abort_all() {
  for (const auto& queue : queues()) queue->abort();
}

std::vector<std::shared_ptr<NcclQueue>> NcclWatch::queues() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<NcclQueue>> alive;
  std::erase_if(queues_, [&](const auto& weak) {
    auto queue = weak.lock();
    if (!queue) return true;
    alive.push_back(std::move(queue));
    return false;
  });
  return alive;
}

void NcclWatch::watch() {
  constexpr std::chrono::milliseconds kPeriod{100};
  device_.set_current();
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, kPeriod, [&] { return stop_; })) {
    lock.unlock();
    for (const auto& queue : queues()) queue->inspect();
    lock.lock();
  }
}

}  // namespace tessera

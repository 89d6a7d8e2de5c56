#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/comm/nccl/nccl_queue.h"

namespace tessera {

// Looks at all groups of a world ten times a second, from a thread of its own: a host that waits
// inside CUDA (for a loss, say) sees neither a time-out nor that another rank has failed. Ending
// NCCL's kernels lets it come back, to an error at its next communication.
class NcclWatch {
 public:
  explicit NcclWatch(const Device& device);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // Watches `queue` until it is destroyed.
  void add(std::weak_ptr<NcclQueue> queue);
  // Aborts NCCL in all groups. May be called from any thread.
  void abort_all();

 private:
  std::vector<std::shared_ptr<NcclQueue>> queues();
  void watch();

  const Device device_;
  std::mutex mutex_;  // guards all below
  std::condition_variable stopped_;
  bool stop_ = false;
  std::vector<std::weak_ptr<NcclQueue>> queues_;
  std::thread thread_;
};

}  // namespace tessera

#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/comm/core/group_context.h"
#include "parallel/comm/core/operation.h"
#include "parallel/comm/nccl/nccl_handle.h"
#include "parallel/device/device.h"

namespace tessera {

// The operations of one group on the GPU: a stream of their own, on which NCCL runs them in the
// order in which they were submitted.
//
//   caller's stream   ... compute |ready            wait() here: compute after the operation
//   group's stream           wait |-> operation |done ->|
//   host              submit() returns when all three are enqueued; block() looks at `done`
//
// Tensors are held until `done` has passed, so that no allocator hands their memory out before; the
// first to find that out (the next submit(), a block() or the watch) releases them. After a failure
// the ranks are out of step: what still runs is aborted, and every later operation fails with the
// first message.
class NcclQueue : public std::enable_shared_from_this<NcclQueue> {
 public:
  NcclQueue(GroupContext group, const Device& device, std::unique_ptr<NcclHandle> handle);

  // Throws Error if the group has failed or NCCL refuses.
  Work submit(Operation op);

  // Collective: the handle of a part of the group.
  std::unique_ptr<NcclHandle> split(int color, int key);

  // Called by the watch's thread. Releases the tensors of finished operations; aborts the world
  // (raises the flag, aborts NCCL) if the oldest operation is overdue or NCCL reports an error;
  // aborts NCCL if the flag was raised elsewhere.
  void inspect() noexcept;

  // From any thread: kernels that wait for a peer end.
  void abort() noexcept { handle_->abort(); }

  // The last call. If `orderly` and nothing has failed, what was submitted is still done.
  void close(bool orderly) noexcept;

 private:
  class Task;
  using Clock = std::chrono::steady_clock;

  void start(Task& task, const Watch& watch);
  ncclResult_t enqueue(const Task& task, ncclComm_t comm) const;
  ncclResult_t exchange_slices(const Operation& op, char* out, ncclComm_t comm) const;
  void block(Task& task);
  void check_usable(const Watch& watch);
  Watch watch_of(const Operation& op) const;
  void note_begun(Task& task);
  void release_finished();
  std::string overdue();
  AbortState& abort_state() const { return *group_.world.abort; }
  void give_up(const std::string& error) noexcept;
  void drain() noexcept;

  const GroupContext group_;
  const int size_;
  const Device device_;
  const Stream stream_;
  const std::unique_ptr<NcclHandle> handle_;
  Event ready_;  // of the caller's stream; recorded anew by each operation
  uint64_t last_sequence_ = 0;
  std::atomic<bool> closing_{false};

  std::mutex mutex_;  // guards all below
  std::deque<std::shared_ptr<Task>> running_;
  WaitedTime oldest_waited_;  // since the first of running_ became the first
  std::string failure_;
};

}  // namespace tessera

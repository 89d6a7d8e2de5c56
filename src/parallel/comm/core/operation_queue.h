#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "parallel/comm/core/transport.h"

namespace tessera {

// Runs the operations of one communicator in the order in which they were submitted.
//
// Each operation is run by whoever comes first: the queue's worker thread, which submit() wakes, or
// the thread that blocks on it. A caller that waits at once thus runs the operation itself, without
// a hand-over to another thread and back (tens of microseconds on a busy core), while an operation
// that nobody waits for yet overlaps with the caller's computation.
//
//   caller   submit ---- compute ------- block()          submit block() runs it here
//   worker       '-- run(op) ------ done                      '-- wakes, finds nothing, sleeps
//
// After a failure the ranks are out of step, so every later operation fails with the first message.
class OperationQueue : public std::enable_shared_from_this<OperationQueue> {
 public:
  OperationQueue(GroupContext group, std::shared_ptr<Transport> transport);
  ~OperationQueue();

  Work submit(Operation op);

  // The last call. If `orderly` and nothing has failed, first finishes what was submitted;
  // otherwise that fails. A worker thread that does not return soon is detached; it shares
  // ownership of all that it uses.
  void close(bool orderly);

 private:
  class Task;

  void work();
  void block(Task& task);
  void run_front(std::unique_lock<std::mutex>& lock);
  void finish(Task& task, const std::string& error);

  const GroupContext group_;
  const std::shared_ptr<Transport> transport_;
  std::atomic<bool> closing_{false};  // ends the waits of a running operation

  std::mutex mutex_;  // guards all below
  std::condition_variable submitted_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  uint64_t last_sequence_ = 0;
  bool busy_ = false;  // some thread is in transport_->run()
  bool closed_ = false;
  bool worker_left_ = false;
  std::string failure_;
  std::thread worker_;
};

}  // namespace tessera

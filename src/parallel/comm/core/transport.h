#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "parallel/comm/core/abort_state.h"
#include "parallel/comm/core/operation.h"
#include "parallel/comm/core/wait_limits.h"

namespace tessera {

// Ends the waits of one operation: at the time-out, when the world is aborted, and when the
// communicator is destroyed. Whoever waits calls check() between short sleeps.
class Watch {
 public:
  Watch(const std::string& group, int rank, const Operation& op, const WaitLimits& limits,
        const AbortState& abort, const std::atomic<bool>& closing);
  // For a wait of the group that belongs to no operation, such as that of a split; `what` names it
  // in messages.
  Watch(const std::string& group, int rank, const char* what, const WaitLimits& limits,
        const AbortState& abort, const std::atomic<bool>& closing);

  // Throws an Error if the wait must end. It names group, operation, sequence number, rank and, at
  // a time-out, the string that `waiting_for()` returns: what the wait is for.
  template <typename F>
  void check(F&& waiting_for) const {
    if (abort_.raised() || closing_.load(std::memory_order_relaxed) || expired())
      raise(waiting_for());
  }

  // "[comm] tp: all_reduce(...) #17 on rank 2", the head of every message.
  std::string head() const;

 private:
  bool expired() const { return waited_.look() >= limit_; }
  [[noreturn]] void raise(const std::string& waiting_for) const;

  const std::string& group_;
  int rank_;
  const Operation* op_ = nullptr;  // null: what_ says it
  const char* what_ = "";
  bool file_work_;
  std::chrono::milliseconds limit_;
  mutable WaitedTime waited_;
  const AbortState& abort_;
  const std::atomic<bool>& closing_;
};

// Moves the data of one group, one operation at a time, in the thread that calls run().
class Transport {
 public:
  virtual ~Transport() = default;
  // Throws Error on failure; the group is unusable from then on.
  virtual void run(const Operation& op, const Watch& watch) = 0;
};

// A transport with a function for each kind of operation. Operations with a count of 0 do not reach
// these functions, except the barrier: there is nothing to move, and the count is the same on every
// rank.
class CollectiveTransport : public Transport {
 public:
  void run(const Operation& op, const Watch& watch) final;

 private:
  virtual void all_gather(const Operation& op, const Watch& watch) = 0;
  virtual void reduce_scatter(const Operation& op, const Watch& watch) = 0;
  virtual void all_reduce(const Operation& op, const Watch& watch) = 0;
  virtual void broadcast(const Operation& op, const Watch& watch) = 0;
  virtual void all_to_all(const Operation& op, const Watch& watch) = 0;
  virtual void send(const Operation& op, const Watch& watch) = 0;
  virtual void recv(const Operation& op, const Watch& watch) = 0;
  virtual void barrier(const Operation& op, const Watch& watch) = 0;
};

}  // namespace tessera

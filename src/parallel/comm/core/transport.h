#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "parallel/comm/core/group_context.h"
#include "parallel/comm/core/operation.h"

namespace tessera {

// What a wait is for, such as ranks 1 and 3 "did not come".
struct Awaited {
  std::vector<int> ranks;  // of the group; empty: `what` says all
  const char* what;
};

// Ends the waits of one operation: at the time-out, when the world is aborted, and when the
// communicator is destroyed. Whoever waits calls check() between short sleeps. What a long wait is
// for goes into the group's record.
class Watch {
 public:
  // The arguments outlive the watch.
  Watch(const GroupContext& group, const Operation& op, const std::atomic<bool>& closing);
  // For a wait of the group that belongs to no operation, such as that of a split; `what` names it
  // in messages.
  Watch(const GroupContext& group, const char* what, const std::atomic<bool>& closing);

  // Throws an Error if the wait must end. It names group, operation, sequence number, rank and, at
  // a time-out, what the wait is for: the Awaited that `waiting_for()` returns.
  template <typename F>
  void check(F&& waiting_for) const {
    const auto waited = waited_.look();
    if (group_.world.abort->raised() || closing_.load(std::memory_order_relaxed) ||
        waited >= limit_)
      raise(waiting_for());
    if (waited >= next_note_) note(waiting_for(), waited);
  }

  const GroupContext& group() const { return group_; }

  // "[comm] tp: all_reduce(...) #17 on rank 2 (n1)", the head of every message.
  std::string head() const;

 private:
  // Between two notes of what a wait is for; shorter waits leave none.
  static constexpr std::chrono::milliseconds kBetweenNotes{100};

  void note(Awaited awaited, WaitedTime::Clock::duration waited) const;
  [[noreturn]] void raise(Awaited awaited) const;

  const GroupContext& group_;
  const Operation* op_ = nullptr;  // null: what_ says it
  const char* what_ = "";
  bool file_work_;
  std::chrono::milliseconds limit_;
  const std::atomic<bool>& closing_;
  mutable WaitedTime waited_;
  mutable WaitedTime::Clock::duration next_note_ = kBetweenNotes;
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

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/core/comm_record.h"
#include "parallel/comm/core/operation.h"

namespace tessera {

// The last operations of one group, as numbers; words are made of them only when somebody looks.
// The group's queue writes three times for an operation (it is queued, it begins, it is done), each
// under a lock that nobody else holds but for a look: some 20 ns, and no memory is allocated.
//
// An operation has its place by its number, and one that has not ended keeps it: of more operations
// than places the later ones are noted when they begin. So the one that runs is always here.
class GroupRecord {
 public:
  using Clock = std::chrono::steady_clock;

  // `ranks`: world ranks, by rank in the group.
  GroupRecord(std::string group, std::vector<int> ranks);

  // Of operations with sequence 1, 2, ..., in this order.
  void queued(const Operation& op);
  // Operations begin in the order in which they were queued, each when the one before is done.
  void running(const Operation& op, Clock::time_point now);
  void done(const Operation& op, Clock::time_point now);

  // Ranks of the group for which the running operation waits.
  void waits_for(std::vector<int> ranks);

  // Called when the group is closed in an orderly way: it is shown no longer.
  void close();
  bool closed() const;

  GroupView view() const;

 private:
  struct Entry {
    int64_t number = 0;  // 0: empty
    OperationKind kind = OperationKind::kBarrier;
    at::ScalarType dtype = at::kByte;
    int64_t count = 0;
    OperationView::State state = OperationView::State::kQueued;
    Clock::time_point begun = {};
    Clock::time_point ended = {};
  };
  static constexpr size_t kEntries = 8;

  static Entry entry_of(const Operation& op);
  Entry& place_of(const Operation& op);
  OperationView view_of(const Entry& entry, Clock::time_point now) const;

  const std::string group_;
  const std::vector<int> ranks_;

  mutable std::mutex mutex_;  // guards all below
  std::array<Entry, kEntries> entries_;
  std::vector<int> awaited_;  // world ranks, by the running operation
  int64_t started_ = 0;
  int64_t done_ = 0;
  bool closed_ = false;
};

}  // namespace tessera

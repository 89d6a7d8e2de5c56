#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tessera {

class GroupRecord;
class RankNames;

// One operation of a group, for people and for a watch.
struct OperationView {
  int64_t number = 0;  // 1, 2, ... within its group, the same on all its ranks
  std::string kind;    // "all-gather", "reduce-scatter", "all-reduce", "broadcast", "all-to-all",
                       // "send", "recv", "barrier"
  int64_t count = 0;   // elements, as operation.h counts them
  std::string dtype;   // "fp32", "bf16", "int64", ... of the elements that travel
  enum class State { kQueued, kRunning, kDone } state = State::kQueued;
  double seconds = 0.0;  // that it has run, or ran; 0: it has not begun
  // World ranks from which something is awaited, in rising order; empty: none known. A rank that is
  // awaited may itself wait for others (in a broadcast or barrier of messages). Only of an
  // operation that has waited for 0.1 s or longer.
  std::vector<int> missing;

  bool operator==(const OperationView&) const = default;
};

// What a group has done and does.
struct GroupView {
  std::string group;       // "world", "tp", ...; "tp on GPUs" where tensors lie there
  std::vector<int> ranks;  // world ranks, by rank in the group
  int64_t started = 0;     // operations that this rank has started
  int64_t done = 0;        // those of them that have ended
  // At most 8, oldest first, with the one that runs among them. An operation that failed stays
  // kRunning: it has not ended.
  std::vector<OperationView> last;
};

// What all groups of this rank's world do. Groups add themselves; their queues write, and anybody
// may look at any time: view() waits for no operation. Groups of one rank are not among them (their
// operations are done at once), nor those that have been closed in an orderly way.
class CommRecord {
 public:
  CommRecord() = default;
  CommRecord(const CommRecord&) = delete;
  CommRecord& operator=(const CommRecord&) = delete;

  // In the order in which the groups were made. From any thread.
  std::vector<GroupView> view() const;

  // For backends: the record of a new group, which its queue writes.
  std::shared_ptr<GroupRecord> add(std::string group, const RankNames& ranks);

 private:
  mutable std::mutex mutex_;  // guards groups_
  std::vector<std::shared_ptr<GroupRecord>> groups_;
};

}  // namespace tessera

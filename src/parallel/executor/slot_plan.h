#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// One stage's turn in a micro-batch: forward, backward, or both at once (the last stage).
struct Turn {
  int stage;
  bool forward;
  bool backward;
};

// The turns over which a bucket, or its gradient, occupies one slot.
struct Hold {
  int bucket;
  int first_turn;  // occupied from the start of this turn; a gather starts then, ahead of its use
  int last_turn;   // free after this turn
  int slot = -1;   // -1: a gather that refreshes the bucket's own memory and needs no slot
};

// The turns of a bucket's first and last backward in a micro-batch; -1: it has none. They differ
// where several stages use it (tied weights).
struct BackwardTurns {
  int first = -1;
  int last = -1;
};

// Which memory each gathered bucket and each gradient occupies at each turn. Everything is known
// before the first step: the order of turns is fixed, so slots are given out once by a linear scan
// (Poletto & Sarkar 1999, as register allocators do), and nothing is allocated while training.
struct SlotPlan {
  std::vector<Turn> turns;
  std::vector<Hold> gathers;  // in order of first_turn
  std::vector<Hold> grads;
  std::vector<int64_t> gather_slot_bytes;
  std::vector<int64_t> grad_slot_bytes;
  std::vector<BackwardTurns> backward;  // by bucket
};

struct SlotPlanOptions {
  int prefetch = 1;  // gathers start this many turns ahead, in both directions
  // The last stages that stay gathered from forward to backward; the very last one always does.
  int keep_gathered = 1;
  bool training = true;  // false: forward turns only
  // Sizes of gather slots that another plan has made: this one uses them too, and grows or adds
  // slots where it must.
  std::vector<int64_t> gather_slot_bytes = {};
};

// What the plan knows of a stage.
struct StageNeeds {
  std::vector<int> buckets;    // which it reads; a tied weight's bucket is listed by several stages
  bool backward_reads = true;  // whether its backward reads the parameters (recompute does)
};

// What the plan knows of a bucket.
struct BucketNeeds {
  int64_t gather_bytes = 0;  // of the slot that its gather needs; 0: none
  bool refreshes = false;    // no slot, but a gather before the first use after an update
  int64_t grad_bytes = 0;    // of the slot that its gradient needs; 0: none
  // Of an offloaded gradient: the operations that its reduction takes, one after another. 0: it is
  // not offloaded.
  int shard_operations = 0;
};

// How many sets of device memory there are for the shards of offloaded gradients while they are
// reduced. A reduction that starts in turn t uses set t % kShardSlotSets until its last operation
// has ended.
inline constexpr int kShardSlotSets = 2;

// Error unless each of these reductions ends before its set is used again. One operation of a
// reduction ends in each turn with a backward after the one in which it starts, so it may have at
// most kShardSlotSets operations, and no turn without a backward may lie between two with one.
void check_shard_slots(const std::vector<Turn>& turns, const std::vector<BucketNeeds>& buckets);

// Error as check_shard_slots().
SlotPlan plan_slots(const std::vector<BucketNeeds>& buckets, const std::vector<StageNeeds>& stages,
                    const SlotPlanOptions& options);

// The plan as a table of turns, for people and tests.
std::string to_string(const SlotPlan& plan);

}  // namespace tessera

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

// A stretch of turns over which one buffer holds one bucket.
struct Hold {
  int bucket;
  int first_turn;  // filled at the start of this turn (gathers: started, for use `prefetch` turns
                   // later)
  int last_turn;   // free after this turn
  int slot = -1;   // none: the bucket has memory of its own that a gather refreshes
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
  // Sizes of gather slots that another plan has already; what fits is put there first.
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

// How many sets of device memory there are for the shards of offloaded gradients. The backward of
// turn t uses set t % kShardSlotSets, from the start of its reduction to the end of it.
inline constexpr int kShardSlotSets = 2;

// Error if the reduction of an offloaded gradient could still run when its set is used again: the
// executor starts a reduction's first operation in a backward turn and the next one in each turn
// after it.
SlotPlan plan_slots(const std::vector<BucketNeeds>& buckets, const std::vector<StageNeeds>& stages,
                    const SlotPlanOptions& options);

// The plan as a table of turns, for people and tests.
std::string to_string(const SlotPlan& plan);

}  // namespace tessera

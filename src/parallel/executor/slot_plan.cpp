#include "parallel/executor/slot_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

// Gives every hold a slot that is free over its turns. Best fit: the smallest that is large enough,
// else the largest free one grows, else a new one.
std::vector<int64_t> assign_slots(std::vector<Hold>& holds, const std::vector<int64_t>& bytes,
                                  std::vector<int64_t> size) {
  std::vector<int> busy_until(size.size(), -1);
  for (auto& hold : holds) {
    const int64_t need = bytes[hold.bucket];
    if (need == 0) continue;
    int best = -1;
    for (int s = 0; s < static_cast<int>(size.size()); ++s) {
      if (busy_until[s] >= hold.first_turn) continue;
      if (best < 0) {
        best = s;
      } else if (size[best] >= need) {
        if (size[s] >= need && size[s] < size[best]) best = s;
      } else if (size[s] > size[best]) {
        best = s;
      }
    }
    if (best < 0) {
      best = static_cast<int>(size.size());
      size.push_back(0);
      busy_until.push_back(-1);
    }
    size[best] = std::max(size[best], need);
    busy_until[best] = hold.last_turn;
    hold.slot = best;
  }
  return size;
}

std::vector<Turn> order_of_turns(int stages, bool training) {
  std::vector<Turn> turns;
  // The last stage runs forward and backward in one turn: its backward follows at once anyway, so
  // its parameters are gathered once and its activations never wait.
  for (int i = 0; i + 1 < stages; ++i) turns.push_back({i, true, false});
  turns.push_back({stages - 1, true, training});
  if (training)
    for (int i = stages - 2; i >= 0; --i) turns.push_back({i, false, true});
  return turns;
}

BackwardTurns backward_turns(const std::vector<Turn>& turns, const std::vector<StageNeeds>& stages,
                             int bucket) {
  BackwardTurns found;
  for (int t = 0; t < static_cast<int>(turns.size()); ++t) {
    const std::vector<int>& read = stages[turns[t].stage].buckets;
    if (!turns[t].backward || std::find(read.begin(), read.end(), bucket) == read.end()) continue;
    if (found.first < 0) found.first = t;
    found.last = t;
  }
  return found;
}

}  // namespace

void check_shard_slots(const std::vector<Turn>& turns, const std::vector<BucketNeeds>& buckets) {
  bool offloads = false;
  for (size_t i = 0; i < buckets.size(); ++i) {
    offloads |= buckets[i].shard_operations > 0;
    if (buckets[i].shard_operations > kShardSlotSets)
      fail("executor",
           "the reduction of bucket {}'s offloaded gradient takes {} operations, one a turn, but "
           "the memory for its shard is used again after {} turns; make kShardSlotSets as large",
           i, buckets[i].shard_operations, kShardSlotSets);
  }
  const auto backward = [](const Turn& turn) { return turn.backward; };
  const auto first = std::find_if(turns.begin(), turns.end(), backward);
  const auto last = std::find_if(turns.rbegin(), turns.rend(), backward).base();
  if (offloads && first < last && !std::all_of(first, last, backward))
    fail("executor",
         "a turn without a backward lies between two with one; the memory for the shards of "
         "offloaded gradients is used again after {} turns, which assumes that reductions go on in "
         "each of them",
         kShardSlotSets);
}

SlotPlan plan_slots(const std::vector<BucketNeeds>& buckets, const std::vector<StageNeeds>& stages,
                    const SlotPlanOptions& options) {
  const int count = static_cast<int>(stages.size());
  SlotPlan plan;
  plan.turns = order_of_turns(count, options.training);
  check_shard_slots(plan.turns, buckets);
  for (int bucket = 0; bucket < static_cast<int>(buckets.size()); ++bucket)
    plan.backward.push_back(backward_turns(plan.turns, stages, bucket));
  std::vector<int64_t> gather_bytes, grad_bytes;
  for (const BucketNeeds& bucket : buckets) {
    gather_bytes.push_back(bucket.gather_bytes);
    grad_bytes.push_back(bucket.grad_bytes);
  }

  std::vector<int> open(buckets.size(), -1);  // index into gathers of the bucket's last hold
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    const Turn& turn = plan.turns[t];
    const StageNeeds& stage = stages[turn.stage];
    const bool reads = turn.forward || stage.backward_reads;
    const bool kept = turn.backward && turn.stage >= count - options.keep_gathered;
    for (int bucket : stage.buckets) {
      const BucketNeeds& needs = buckets[bucket];
      int& index = open[bucket];
      if (reads && (needs.gather_bytes > 0 || (needs.refreshes && index < 0))) {
        const int start = std::max(0, t - options.prefetch);
        // If its next gather would start in the turn after its release, it stays.
        if (index >= 0 && (kept || plan.gathers[index].last_turn + 1 >= start)) {
          plan.gathers[index].last_turn = t;
        } else {
          index = static_cast<int>(plan.gathers.size());
          plan.gathers.push_back({bucket, start, t});
        }
      }
      // A gradient is reduced while the next turn runs.
      if (turn.backward && needs.grad_bytes > 0) plan.grads.push_back({bucket, t, t + 1});
    }
  }
  std::stable_sort(plan.gathers.begin(), plan.gathers.end(),
                   [](const Hold& a, const Hold& b) { return a.first_turn < b.first_turn; });
  plan.gather_slot_bytes = assign_slots(plan.gathers, gather_bytes, options.gather_slot_bytes);
  plan.grad_slot_bytes = assign_slots(plan.grads, grad_bytes, {});
  return plan;
}

std::string to_string(const SlotPlan& plan) {
  std::string text;
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    const auto& turn = plan.turns[t];
    text += fmt::format("turn {:3}  stage {:3} {:8}", t, turn.stage,
                        turn.forward ? (turn.backward ? "fwd+bwd" : "fwd") : "bwd");
    for (const auto& hold : plan.gathers) {
      if (hold.first_turn == t)
        text += hold.slot < 0 ? fmt::format("  refresh {}", hold.bucket)
                              : fmt::format("  gather {} into slot {}", hold.bucket, hold.slot);
      if (hold.last_turn == t && hold.slot >= 0) text += fmt::format("  release {}", hold.bucket);
    }
    for (const auto& hold : plan.grads)
      if (hold.first_turn == t)
        text += fmt::format("  reduce {} from grad slot {}", hold.bucket, hold.slot);
    text += '\n';
  }
  return text;
}

}  // namespace tessera

#include "parallel/executor/slot_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

// Gives every hold a slot that is free over its turns. Best fit: the smallest that is large enough,
// else the largest free one grows, else a new one.
std::vector<int64_t> assign_slots(std::vector<Hold>& holds, const std::vector<int64_t>& bytes) {
  std::vector<int64_t> size;
  std::vector<int> busy_until;
  for (auto& hold : holds) {
    const int64_t need = bytes[hold.bucket];
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

}  // namespace

SlotPlan plan_slots(const std::vector<int64_t>& bytes, const std::vector<StageNeeds>& stages,
                    const SlotPlanOptions& options) {
  const int count = static_cast<int>(stages.size());
  SlotPlan plan;
  // The last stage runs forward and backward in one turn: its backward follows at once anyway, so
  // its parameters are gathered once and its activations never wait.
  for (int i = 0; i + 1 < count; ++i) plan.turns.push_back({i, true, false});
  plan.turns.push_back({count - 1, true, options.training});
  if (options.training)
    for (int i = count - 2; i >= 0; --i) plan.turns.push_back({i, false, true});

  std::vector<int> open(bytes.size(), -1);  // index into gathers of the bucket's last hold
  for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
    const auto& turn = plan.turns[t];
    const auto& stage = stages[turn.stage];
    const bool reads = turn.forward || options.recompute || stage.backward_reads;
    for (int bucket : stage.buckets) {
      if (bytes[bucket] == 0) continue;
      if (reads) {
        const int start = std::max(0, t - options.prefetch);
        int& index = open[bucket];
        // Releasing what the prefetch would gather again at once: keep it instead.
        if (index >= 0 && plan.gathers[index].last_turn + 1 >= start) {
          plan.gathers[index].last_turn = t;
        } else {
          index = static_cast<int>(plan.gathers.size());
          plan.gathers.push_back({bucket, start, t});
        }
      }
      // A gradient is reduced while the next turn runs.
      if (turn.backward) plan.grads.push_back({bucket, t, t + 1});
    }
  }
  std::stable_sort(plan.gathers.begin(), plan.gathers.end(),
                   [](const Hold& a, const Hold& b) { return a.first_turn < b.first_turn; });
  plan.gather_slot_bytes = assign_slots(plan.gathers, bytes);
  plan.grad_slot_bytes = assign_slots(plan.grads, bytes);
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
        text += fmt::format("  gather {} into slot {}", hold.bucket, hold.slot);
      if (hold.last_turn == t) text += fmt::format("  release {}", hold.bucket);
    }
    for (const auto& hold : plan.grads)
      if (hold.first_turn == t)
        text += fmt::format("  reduce {} from grad slot {}", hold.bucket, hold.slot);
    text += '\n';
  }
  return text;
}

}  // namespace tessera

#include "parallel/executor/slot_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tessera {
namespace {

const Hold* hold_at(const std::vector<Hold>& holds, int stage, int turn) {
  for (const auto& hold : holds)
    if (hold.stage == stage && hold.first_turn <= turn && turn <= hold.last_turn) return &hold;
  return nullptr;
}

// Two holds that overlap in time never share a slot, and every hold fits its slot.
void expect_sound(const std::vector<Hold>& holds, const std::vector<int64_t>& slots,
                  const std::vector<int64_t>& bytes) {
  for (size_t i = 0; i < holds.size(); ++i) {
    ASSERT_GE(holds[i].slot, 0);
    EXPECT_GE(slots.at(holds[i].slot), bytes[holds[i].stage]);
    for (size_t j = i + 1; j < holds.size(); ++j)
      if (holds[i].slot == holds[j].slot) {
        EXPECT_TRUE(holds[i].last_turn < holds[j].first_turn ||
                    holds[j].last_turn < holds[i].first_turn);
      }
  }
}

TEST(SlotPlan, HoldsWhatEveryTurnReads) {
  for (int stages : {1, 2, 3, 6, 33}) {
    for (int prefetch : {0, 1, 2}) {
      for (bool recompute : {false, true}) {
        std::vector<int64_t> bytes(stages, 10);
        bytes.front() = 70;
        bytes.back() = 80;
        std::vector<bool> reads(stages, true);
        reads.front() = false;
        const SlotPlan plan =
            plan_slots(bytes, reads, {.prefetch = prefetch, .recompute = recompute});
        ASSERT_EQ(plan.turns.size(), 2U * stages - 1);
        for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
          const auto& turn = plan.turns[t];
          const bool reads_now = turn.forward || recompute || reads[turn.stage];
          EXPECT_TRUE(!reads_now || hold_at(plan.gathers, turn.stage, t)) << to_string(plan);
          EXPECT_TRUE(!turn.backward || hold_at(plan.grads, turn.stage, t));
        }
        expect_sound(plan.gathers, plan.gather_slot_bytes, bytes);
        expect_sound(plan.grads, plan.grad_slot_bytes, bytes);
      }
    }
  }
}

TEST(SlotPlan, RingsDoNotGrowWithDepth) {
  for (int stages : {6, 7, 33, 34, 130}) {
    const SlotPlan plan = plan_slots(std::vector<int64_t>(stages, 1),
                                     std::vector<bool>(stages, true), {.prefetch = 1});
    EXPECT_EQ(plan.gather_slot_bytes.size(), 2U);
    EXPECT_EQ(plan.grad_slot_bytes.size(), 2U);
  }
}

TEST(SlotPlan, KeepsTheLastBlockForItsBackward) {
  const SlotPlan plan = plan_slots({1, 1, 1, 1}, {true, true, true, true}, {.prefetch = 1});
  int gathers_of_last_block = 0;
  for (const auto& hold : plan.gathers) gathers_of_last_block += hold.stage == 2;
  EXPECT_EQ(gathers_of_last_block, 1);  // forward turn 2, head turn 3, backward turn 4
}

TEST(SlotPlan, ResidentBucketsNeedNoSlot) {
  const SlotPlan plan = plan_slots({0, 0, 0}, {true, true, true}, {});
  EXPECT_TRUE(plan.gathers.empty());
  EXPECT_TRUE(plan.gather_slot_bytes.empty());
  EXPECT_TRUE(plan.grads.empty());
}

TEST(SlotPlan, PrefetchStartsAheadInBothDirections) {
  const SlotPlan plan =
      plan_slots(std::vector<int64_t>(6, 1), std::vector<bool>(6, true), {.prefetch = 1});
  for (const auto& hold : plan.gathers) {
    int first_use = hold.last_turn;
    for (int t = hold.last_turn; t >= hold.first_turn; --t)
      if (plan.turns[t].stage == hold.stage) first_use = t;
    EXPECT_EQ(hold.first_turn, std::max(0, first_use - 1)) << to_string(plan);
  }
}

}  // namespace
}  // namespace tessera

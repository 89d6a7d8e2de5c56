#include "parallel/executor/slot_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace tessera {
namespace {

const Hold* hold_at(const std::vector<Hold>& holds, int bucket, int turn) {
  for (const auto& hold : holds)
    if (hold.bucket == bucket && hold.first_turn <= turn && turn <= hold.last_turn) return &hold;
  return nullptr;
}

// Buckets at zero 3, with gathers and gradients of these sizes.
std::vector<BucketNeeds> gathered(const std::vector<int64_t>& bytes) {
  std::vector<BucketNeeds> needs;
  for (int64_t n : bytes) needs.push_back({.gather_bytes = n, .grad_bytes = n});
  return needs;
}

// One bucket a stage, as most models have it.
std::vector<StageNeeds> own_buckets(int stages) {
  std::vector<StageNeeds> needs(stages);
  for (int i = 0; i < stages; ++i) needs[i].buckets = {i};
  return needs;
}

// Two holds that overlap in time never share a slot, and every hold fits its slot.
void expect_sound(const std::vector<Hold>& holds, const std::vector<int64_t>& slots,
                  const std::vector<int64_t>& bytes) {
  for (size_t i = 0; i < holds.size(); ++i) {
    ASSERT_GE(holds[i].slot, 0);
    EXPECT_GE(slots.at(holds[i].slot), bytes[holds[i].bucket]);
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
        auto needs = own_buckets(stages);
        needs.front().backward_reads = recompute;
        const SlotPlan plan = plan_slots(gathered(bytes), needs, {.prefetch = prefetch});
        ASSERT_EQ(plan.turns.size(), 2U * stages - 1);
        for (int t = 0; t < static_cast<int>(plan.turns.size()); ++t) {
          const auto& turn = plan.turns[t];
          const bool reads_now = turn.forward || needs[turn.stage].backward_reads;
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
    const SlotPlan plan =
        plan_slots(gathered(std::vector<int64_t>(stages, 1)), own_buckets(stages), {.prefetch = 1});
    EXPECT_EQ(plan.gather_slot_bytes.size(), 2U);
    EXPECT_EQ(plan.grad_slot_bytes.size(), 2U);
  }
}

TEST(SlotPlan, KeepsTheLastBlockForItsBackward) {
  const SlotPlan plan = plan_slots(gathered({1, 1, 1, 1}), own_buckets(4), {.prefetch = 1});
  int gathers_of_last_block = 0;
  for (const auto& hold : plan.gathers) gathers_of_last_block += hold.bucket == 2;
  EXPECT_EQ(gathers_of_last_block, 1);  // forward turn 2, head turn 3, backward turn 4
}

TEST(SlotPlan, ResidentBucketsNeedNoSlot) {
  const SlotPlan plan = plan_slots(std::vector<BucketNeeds>(3), own_buckets(3), {});
  EXPECT_TRUE(plan.gathers.empty());
  EXPECT_TRUE(plan.gather_slot_bytes.empty());
  EXPECT_TRUE(plan.grads.empty());
}

TEST(SlotPlan, PrefetchStartsAheadInBothDirections) {
  const SlotPlan plan =
      plan_slots(gathered(std::vector<int64_t>(6, 1)), own_buckets(6), {.prefetch = 1});
  for (const auto& hold : plan.gathers) {
    int first_use = hold.last_turn;
    for (int t = hold.last_turn; t >= hold.first_turn; --t)
      if (plan.turns[t].stage == hold.bucket) first_use = t;
    EXPECT_EQ(hold.first_turn, std::max(0, first_use - 1)) << to_string(plan);
  }
}

TEST(SlotPlan, ATiedBucketIsHeldAndReducedByEachOfItsStages) {
  auto needs = own_buckets(5);
  needs[0].buckets = {0, 4};  // the embedding's weight is the head's
  const SlotPlan plan = plan_slots(gathered({1, 1, 1, 1, 1}), needs, {.prefetch = 1});
  int reduces = 0;
  for (const auto& hold : plan.grads) reduces += hold.bucket == 4;
  EXPECT_EQ(reduces, 2);
  for (int turn : {0, 4, 8}) EXPECT_TRUE(hold_at(plan.gathers, 4, turn)) << to_string(plan);
  expect_sound(plan.gathers, plan.gather_slot_bytes, {1, 1, 1, 1, 1});
  expect_sound(plan.grads, plan.grad_slot_bytes, {1, 1, 1, 1, 1});
}

int gathers_of(const SlotPlan& plan, int bucket) {
  return static_cast<int>(std::count_if(plan.gathers.begin(), plan.gathers.end(),
                                        [&](const Hold& hold) { return hold.bucket == bucket; }));
}

TEST(SlotPlan, KeepsAsManyStagesGatheredAsAskedFor) {
  for (int keep : {1, 2, 4, 8}) {
    const SlotPlan plan = plan_slots(gathered(std::vector<int64_t>(8, 1)), own_buckets(8),
                                     {.prefetch = 0, .keep_gathered = keep});
    for (int stage = 0; stage < 8; ++stage)
      EXPECT_EQ(gathers_of(plan, stage), stage >= 8 - keep ? 1 : 2) << keep << ", " << stage;
    expect_sound(plan.gathers, plan.gather_slot_bytes, std::vector<int64_t>(8, 1));
    EXPECT_EQ(plan.gather_slot_bytes.size(), std::max<size_t>(1, keep)) << to_string(plan);
  }
}

TEST(SlotPlan, FullCopiesAreRefreshedOnceAheadOfTheirFirstUse) {
  const SlotPlan plan =
      plan_slots(std::vector<BucketNeeds>(4, {.refreshes = true}), own_buckets(4), {.prefetch = 1});
  ASSERT_EQ(plan.gathers.size(), 4U);
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(gathers_of(plan, stage), 1);
    EXPECT_EQ(plan.gathers[stage].first_turn, std::max(0, stage - 1));
    EXPECT_EQ(plan.gathers[stage].slot, -1);
  }
  EXPECT_TRUE(plan.gather_slot_bytes.empty());
}

TEST(SlotPlan, KnowsTheFirstAndLastBackwardOfEachBucket) {
  std::vector<StageNeeds> stages = own_buckets(3);
  stages[2].buckets = {2, 0};  // a tied weight
  const SlotPlan plan = plan_slots(gathered({1, 1, 1, 1}), stages, {});
  ASSERT_EQ(plan.backward.size(), 4U);
  const std::vector<std::pair<int, int>> wanted = {{2, 4}, {3, 3}, {2, 2}, {-1, -1}};
  for (size_t bucket = 0; bucket < wanted.size(); ++bucket) {
    EXPECT_EQ(plan.backward[bucket].first, wanted[bucket].first) << bucket;
    EXPECT_EQ(plan.backward[bucket].last, wanted[bucket].second) << bucket;
  }
  for (const BackwardTurns& none :
       plan_slots(gathered({1, 1, 1}), own_buckets(3), {.training = false}).backward)
    EXPECT_EQ(none.last, -1);
}

std::string error_of(const std::vector<Turn>& turns, const std::vector<BucketNeeds>& buckets) {
  try {
    check_shard_slots(turns, buckets);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The memory of an offloaded gradient's shard is used again after kShardSlotSets turns.
TEST(SlotPlan, RefusesReductionsThatOutlastTheirShardMemory) {
  std::vector<BucketNeeds> buckets = gathered({1, 1, 1});
  const std::vector<Turn> turns = plan_slots(buckets, own_buckets(3), {}).turns;
  const std::vector<Turn> gap = {{2, true, true}, {0, true, false}, {1, false, true}};
  EXPECT_EQ(error_of(gap, buckets), "");  // nothing is offloaded
  buckets[1].shard_operations = kShardSlotSets;
  EXPECT_EQ(error_of(turns, buckets), "");
  EXPECT_NE(error_of(gap, buckets).find("a turn without a backward"), std::string::npos);
  buckets[1].shard_operations = kShardSlotSets + 1;
  EXPECT_NE(error_of(turns, buckets)
                .find("the reduction of bucket 1's offloaded gradient takes 3 operations"),
            std::string::npos);
  EXPECT_THROW(plan_slots(buckets, own_buckets(3), {}), Error);
}

}  // namespace
}  // namespace tessera

#include "parallel/comm/core/group_record.h"

#include <gtest/gtest.h>

#include "parallel/comm/core/rank_names.h"

namespace tessera {
namespace {

using State = OperationView::State;

Operation operation(uint64_t sequence, int64_t count = 10) {
  Operation op;
  op.kind = OperationKind::kAllGather;
  op.dtype = at::kFloat;
  op.count = count;
  op.sequence = sequence;
  return op;
}

std::vector<int64_t> numbers_of(const GroupView& view) {
  std::vector<int64_t> numbers;
  for (const OperationView& op : view.last) numbers.push_back(op.number);
  return numbers;
}

TEST(GroupRecord, ShowsTheLastEightOldestFirst) {
  GroupRecord record("gather", {4, 6});
  const auto begin = GroupRecord::Clock::now();
  for (uint64_t number = 1; number <= 20; ++number) {
    record.queued(operation(number));
    record.running(operation(number), begin);
    record.done(operation(number), begin + std::chrono::milliseconds(1500));
  }
  const GroupView view = record.view();
  EXPECT_EQ(view.group, "gather");
  EXPECT_EQ(view.ranks, (std::vector<int>{4, 6}));
  EXPECT_EQ(view.started, 20);
  EXPECT_EQ(view.done, 20);
  EXPECT_EQ(numbers_of(view), (std::vector<int64_t>{13, 14, 15, 16, 17, 18, 19, 20}));
  const OperationView expected{.number = 20,
                               .kind = "all-gather",
                               .count = 10,
                               .dtype = "fp32",
                               .state = State::kDone,
                               .seconds = 1.5,
                               .missing = {}};
  EXPECT_EQ(view.last.back(), expected);
}

// However many wait behind it, the one that runs is shown.
TEST(GroupRecord, TheRunningOperationIsAlwaysShown) {
  GroupRecord record("gather", {0, 1});
  const auto now = GroupRecord::Clock::now();
  for (uint64_t number = 1; number <= 30; ++number) record.queued(operation(number, 1 + number));
  record.running(operation(1, 2), now);
  GroupView view = record.view();
  EXPECT_EQ(view.started, 30);
  EXPECT_EQ(numbers_of(view), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(view.last[0].state, State::kRunning);
  EXPECT_EQ(view.last[1].state, State::kQueued);
  EXPECT_EQ(view.last[1].seconds, 0.0);
  for (uint64_t number = 1; number < 12; ++number) {
    record.done(operation(number, 1 + number), now);
    record.running(operation(number + 1, 2 + number), now);
  }
  view = record.view();
  EXPECT_EQ(view.done, 11);
  EXPECT_EQ(view.last.back().number, 12);
  EXPECT_EQ(view.last.back().count, 13);
  EXPECT_EQ(view.last.back().state, State::kRunning);
}

TEST(GroupRecord, WhatIsAwaitedBelongsToTheRunningOperation) {
  GroupRecord record("gather", {8, 5, 7});
  const auto now = GroupRecord::Clock::now();
  record.queued(operation(1));
  record.queued(operation(2));
  record.running(operation(1), now);
  record.waits_for({0, 2});
  EXPECT_EQ(record.view().last[0].missing, (std::vector<int>{7, 8}));
  EXPECT_TRUE(record.view().last[1].missing.empty());
  record.done(operation(1), now);
  record.running(operation(2), now);
  EXPECT_TRUE(record.view().last[0].missing.empty());
  EXPECT_TRUE(record.view().last[1].missing.empty());
}

TEST(CommRecord, ShowsGroupsUntilTheyAreClosed) {
  CommRecord world;
  const RankNames names(4);
  const auto first = world.add("first", names), second = world.add("second", *names.part({3, 1}));
  ASSERT_EQ(world.view().size(), 2u);
  EXPECT_EQ(world.view()[0].ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(world.view()[1].ranks, (std::vector<int>{3, 1}));
  first->close();
  ASSERT_EQ(world.view().size(), 1u);
  EXPECT_EQ(world.view()[0].group, "second");
}

TEST(RankNames, NameTheWorldsRankAndItsHost) {
  const RankNames world(std::vector<std::string>{"n1", "n1", "n2", ""});
  EXPECT_EQ(world.text(2), "rank 2 (n2)");
  EXPECT_EQ(world.text(3), "rank 3");
  const auto part = world.part({3, 2, 0});
  EXPECT_EQ(part->world_rank(1), 2);
  EXPECT_EQ(part->host(1), "n2");
  EXPECT_EQ(part->part({1})->text(0), "rank 2 (n2)");
  EXPECT_EQ(part->text(std::vector<int>{2, 1}), "rank 0 (n1), rank 2 (n2)");
  EXPECT_EQ(RankNames(11).text(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            "rank 0, rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7 and 2 more");
}

}  // namespace
}  // namespace tessera

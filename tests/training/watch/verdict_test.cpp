// What is said of a run that cannot go on, and of one that can: pure arithmetic on the states of
// all ranks.
#include "training/watch/verdict.h"

#include <gtest/gtest.h>

#include "training/watch/rank_states.h"
#include "training/watch/wait_graph.h"

namespace tessera {
namespace {

using Life = RankState::Life;
using Reason = Verdict::Reason;

// Expects a verdict on `culprits` whose text holds each of `parts`.
void expect_verdict(const std::vector<RankState>& all, Reason reason,
                    const std::vector<int>& culprits, const std::vector<std::string>& parts) {
  const auto verdict = judge(all);
  ASSERT_TRUE(verdict);
  EXPECT_STREQ(reason_name(verdict->reason), reason_name(reason)) << verdict->text;
  EXPECT_EQ(verdict->ranks, culprits) << verdict->text;
  for (const std::string& part : parts)
    EXPECT_NE(verdict->text.find(part), std::string::npos) << part << "\nis not in\n"
                                                           << verdict->text;
}

void expect_none(const std::vector<RankState>& all) {
  const auto verdict = judge(all);
  EXPECT_FALSE(verdict) << verdict->text;
}

TEST(Verdict, ARunThatGetsOnHasNone) {
  expect_none(healthy_world(8));
}

// ---- Ranks that are gone

TEST(Verdict, ADeadRankIsNamedWithItsPlace) {
  auto all = healthy_world(8);
  all[5].life = Life::kLost;
  all[5].silent = 0.4;
  all[5].place = {Phase::kForward, 812, 3, 5000};
  expect_verdict(all, Reason::kLostRank, {5},
                 {"rank 5 (n2, dp 2, tp 1) is gone: its process ended without a word",
                  "last heard of at step 812 in the forward pass of stage 3"});
  EXPECT_EQ(judge(all)->host, "n2");
  EXPECT_EQ(judge(all)->step, 812);
}

TEST(Verdict, ADeadRankWaitsForOthersThatDieWithIt) {
  auto all = healthy_world(4);
  all[3].life = Life::kLost;
  all[3].silent = 0.2;
  expect_none(all);
  EXPECT_TRUE(judge(all, {.settle = 0.1}));
}

TEST(Verdict, ANodeThatIsGoneIsOneCulprit) {
  auto all = healthy_world(8);
  for (const int rank : {4, 5}) {
    all[rank].life = Life::kLost;
    all[rank].silent = 0.4;
  }
  expect_verdict(all, Reason::kLostRank, {4, 5},
                 {"node n2 is gone, with ranks 4 and 5: their processes ended without a word"});
  for (const int rank : {4, 5}) all[rank].end = "Connection timed out";
  expect_verdict(all, Reason::kLostRank, {4, 5},
                 {"node n2 is gone", "nothing gets through to it (Connection timed out)"});
}

TEST(Verdict, AMachineThatIsOutOfReachIsNoDeadProcess) {
  auto all = healthy_world(4);
  all[3].life = Life::kLost;
  all[3].silent = 0.4;
  all[3].end = "Connection timed out";
  expect_verdict(all, Reason::kLostRank, {3}, {"rank 3 (n1, dp 1, tp 1) is out of reach"});
}

TEST(Verdict, WhoHasLeftInOrderIsNotLost) {
  auto all = healthy_world(4);
  all[3].life = Life::kLeft;
  expect_none(all);
}

// ---- Errors

TEST(Verdict, AnErrorIsToldWithRankAndPlace) {
  auto all = healthy_world(4);
  all[2].life = Life::kFailed;
  all[2].end = "[data] tokens.bin: cannot be read";
  all[2].exit_code = 2;
  all[2].silent = 0.4;
  all[2].place = {Phase::kData, 7, -1, 9};
  expect_verdict(all, Reason::kError, {2},
                 {"rank 2 (n1, dp 1, tp 0), at step 7 in the data loader: [data] tokens.bin"});
  EXPECT_EQ(judge(all)->exit_code, 2);
}

TEST(Verdict, AnErrorOfAllRanksIsToldOnceAndPlainly) {
  auto all = healthy_world(4);
  for (RankState& state : all) {
    state.life = Life::kFailed;
    state.end = "[config] parallel.tp: 3 does not divide 4";
    state.silent = 0.4;
  }
  EXPECT_EQ(judge(all)->text, "[config] parallel.tp: 3 does not divide 4");
}

TEST(Verdict, TheCauseIsToldAndNotWhatFollowsFromIt) {
  auto all = healthy_world(4);
  for (const int rank : {0, 1, 3}) {
    all[rank].life = Life::kFailed;
    all[rank].end = "[comm] world: barrier on rank 0 was aborted: a rank failed";
    all[rank].silent = 1.0;
  }
  expect_none(all);  // the cause may still come
  all[2].life = Life::kFailed;
  all[2].end = "[kernels] out of memory";
  all[2].silent = 0.4;
  for (RankState& state : all) state.silent = 0.4;
  expect_verdict(all, Reason::kError, {2}, {"[kernels] out of memory"});
  all[2].life = Life::kLost;
  all[2].end = "";
  expect_verdict(all, Reason::kLostRank, {2}, {"rank 2 (n1, dp 1, tp 0) is gone"});
}

TEST(Verdict, AnAbortWithoutACauseIsToldInTheEnd) {
  auto all = healthy_world(2);
  all[1].life = Life::kFailed;
  all[1].end = "[comm] world: barrier on rank 1 was aborted: nobody knows why";
  all[1].silent = 3.1;
  expect_verdict(all, Reason::kError, {1}, {"nobody knows why"});
}

// ---- Stopped ranks

TEST(Verdict, AStoppedRankIsNamedWithWhatWaitsForIt) {
  auto all = healthy_world(4);
  stand_still(all);
  hold_back(all[3], {Phase::kBackward, 812, 1, 5000});
  all[3].silent = 61.0;
  expect_verdict(all, Reason::kHang, {3},
                 {"rank 3 (n1, dp 1, tp 1) is stopped: nothing was heard of it for 61 s",
                  "at step 812 in the backward pass of stage 1",
                  "the other 3 wait for it in all-gather 1042 (bf16, 64 elements) of \"gather\""});
}

TEST(Verdict, ANodeThatFallsSilentIsOneCulprit) {
  auto all = healthy_world(8);
  for (const int rank : {6, 7}) all[rank].silent = 61.0;
  expect_verdict(all, Reason::kHang, {6, 7}, {"node n3 is stopped or cut off", "ranks 6 and 7"});
}

TEST(Verdict, SilenceHasItsOwnLimitWhereMuchTimeIsAllowed) {
  auto all = healthy_world(2);
  all[1].place = {Phase::kSave, 812, -1, 5000};
  all[1].limit = 3600.0;
  all[1].silent = 59.0;
  expect_none(all);
  all[1].silent = 61.0;
  expect_verdict(all, Reason::kHang, {1}, {"is stopped"});
  all[1].limit = 1.0;
  all[1].silent = 2.9;
  expect_none(all);
  all[1].limit = 0.0;  // watchdog.save: 0
  all[1].silent = 61.0;
  expect_none(all);
}

// ---- The start

std::vector<RankState> starting_world(int ranks, double seconds) {
  auto all = healthy_world(ranks);
  for (RankState& state : all) {
    state.dp = state.tp = -1;
    state.groups.clear();
    state.place = {Phase::kConnect, 0, -1, 1};
    state.limit = 120.0;
    state.key = "watchdog.start";
    state.quiet = seconds;
  }
  return all;
}

TEST(Verdict, ARankThatNeverStartedIsNamedWithTheHostThatTheLauncherSaid) {
  auto all = starting_world(4, 122.0);
  all[3].life = Life::kAbsent;
  expect_verdict(all, Reason::kHang, {3},
                 {"rank 3 (n1) has not started: nothing was ever heard of it",
                  "after 122 s (watchdog.start) the other 3 wait for it in the start of MPI"});
  all[3].host = "";
  expect_verdict(all, Reason::kHang, {3}, {"rank 3 has not started"});
  all[3].quiet = 119.0;
  for (int i = 0; i < 3; ++i) all[i].quiet = 119.0;
  expect_none(all);
}

TEST(Verdict, ANodeWhereNothingStartedIsOneCulprit) {
  auto all = starting_world(6, 122.0);
  all[4].life = all[5].life = Life::kAbsent;
  expect_verdict(all, Reason::kHang, {4, 5},
                 {"node n2: none of its ranks 4 and 5 has started", "wait for them"});
}

TEST(Verdict, WhoIsNotConnectedIsNotMissingOnceMpiRuns) {
  auto all = healthy_world(4);
  all[3].life = Life::kAbsent;
  all[3].limit = 120.0;
  all[3].quiet = 1000.0;
  expect_none(all);
}

TEST(Verdict, ARankThatHasNotComeToTheStartOfMpiIsNamed) {
  auto all = starting_world(4, 122.0);
  all[2].place = {Phase::kLaunch, 0, -1, 0};
  expect_verdict(all, Reason::kHang, {2}, {"rank 2 (n1) is before the start of MPI"});
}

TEST(Verdict, AStartOfMpiThatDoesNotEndSaysThatNobodyIsMissing) {
  expect_verdict(starting_world(4, 122.0), Reason::kHang, {},
                 {"all 4 ranks are in the start of MPI for 122 s", "docker0"});
}

// ---- Hangs

TEST(Verdict, ARankThatIsStuckInItsOwnWorkIsNamedWithTheOperation) {
  for (const PlaceView place :
       {PlaceView{Phase::kData, 812, -1, 5000}, PlaceView{Phase::kForward, 812, 2, 5000},
        PlaceView{Phase::kUpdate, 812, -1, 5000}}) {
    auto all = healthy_world(8);
    stand_still(all);
    hold_back(all[5], place);
    expect_verdict(all, Reason::kHang, {5},
                   {"rank 5 (n2, dp 2, tp 1) is " + place.text() +
                        " and did not enter all-gather 1042 (bf16, 64 elements) of \"gather\"; the "
                        "other 7 wait in it",
                    "no progress for 62 s; 60 are allowed (watchdog.step)"});
  }
}

TEST(Verdict, ARankThatWorksOnIsWaitedFor) {
  auto all = healthy_world(4);
  stand_still(all);
  hold_back(all[1], {Phase::kLoad, 0, -1, 77});
  all[1].quiet = 0.5;
  all[1].groups.clear();  // a rank that gets on does not tell what it communicates
  expect_none(all);
}

TEST(Verdict, ASaveHasItsOwnLimitThoughOthersWaitInAStep) {
  auto all = healthy_world(4);
  stand_still(all);
  hold_back(all[0], {Phase::kSave, 812, -1, 5000});
  all[0].limit = 3600.0;
  all[0].key = "watchdog.save";
  expect_none(all);
  all[0].quiet = 3602.0;
  expect_verdict(all, Reason::kHang, {0},
                 {"rank 0 (n0, dp 0, tp 0) is at step 812 in the save", "watchdog.save"});
}

TEST(Verdict, ASkippedOperationOfAnotherGroupIsFoundInTheCircle) {
  auto all = healthy_world(8);
  stand_still(all);
  for (RankState& state : all) {
    GroupView reduce{"reduce", state.groups[0].ranks, 87, 87, {}};
    reduce.last.push_back({87, "reduce-scatter", 64, "fp32", OperationView::State::kDone, 0.1, {}});
    state.groups.push_back(std::move(reduce));
  }
  // Rank 5 has left out the gather and waits in the reduction that follows.
  all[5].groups[0].started = 1041;
  all[5].groups[0].last.pop_back();
  all[5].groups[1].started = 88;
  all[5].groups[1].last.push_back(
      {88, "reduce-scatter", 64, "fp32", OperationView::State::kRunning, 61.0, {}});
  expect_verdict(all, Reason::kHang, {5},
                 {"rank 5 (n2, dp 2, tp 1)", "waits in reduce-scatter 88",
                  "did not enter all-gather 1042", "the other 7 wait in it"});
}

TEST(Verdict, AnotherKindUnderTheSameNumberIsNamed) {
  auto all = healthy_world(4);
  stand_still(all);
  OperationView& odd = all[2].groups[0].last.back();
  odd.kind = "all-reduce";
  odd.count = 3;
  odd.dtype = "fp64";
  expect_verdict(all, Reason::kHang, {2},
                 {"rank 2 (n1, dp 1, tp 0)", "started all-reduce 1042 (fp64, 3 elements)",
                  "ranks 0, 1 and 3 started all-gather 1042 (bf16, 64 elements)"});
}

TEST(Verdict, AnotherSizeUnderTheSameNumberIsNamed) {
  auto all = healthy_world(4);
  stand_still(all);
  all[0].groups[0].last.back().count = 63;
  expect_verdict(all, Reason::kHang, {0}, {"rank 0", "63 elements", "64 elements"});
}

TEST(Verdict, OfTwoRanksThatDisagreeNoneIsBlamed) {
  auto all = healthy_world(2);
  stand_still(all);
  all[1].groups[0].last.back().count = 63;
  expect_verdict(all, Reason::kHang, {}, {"rank 0 started", "rank 1 started", "63 elements"});
}

TEST(Verdict, AnOperationThatAllHaveEnteredAndThatDoesNotEndBlamesNobody) {
  auto all = healthy_world(4);
  stand_still(all);
  expect_verdict(all, Reason::kHang, {},
                 {"all ranks of all-gather 1042", "does not end", "is stuck"});
}

TEST(Verdict, WhatAThreadWritesBesideTrainingIsNoWait) {
  auto all = healthy_world(2);
  stand_still(all);
  hold_back(all[1], {Phase::kForward, 812, 0, 5000});
  GroupView save{"checkpoint", all[1].groups[0].ranks, 5, 4, {}};
  save.last.push_back({5, "barrier", 0, "uint8", OperationView::State::kRunning, 30.0, {}});
  all[1].groups.push_back(save);
  save.started = 4;
  save.last.clear();
  all[0].groups.push_back(save);
  expect_verdict(all, Reason::kHang, {1}, {"rank 1 (n0, dp 0, tp 1) is at step 812"});
}

TEST(Verdict, WithoutRecordsWhoIsFurthestBehindIsNamed) {
  auto all = healthy_world(4);
  stand_still(all);
  for (RankState& state : all) state.groups.clear();
  all[3].place = {Phase::kData, 812, -1, 5000};
  expect_verdict(all, Reason::kHang, {3}, {"rank 3 (n1, dp 1, tp 1) is at step 812 in the data"});
}

TEST(Verdict, NoLimitNoVerdict) {
  auto all = healthy_world(4);
  stand_still(all);
  hold_back(all[1], {Phase::kData, 812, -1, 5000});
  for (RankState& state : all) {
    state.limit = 0.0;
    state.silent = 1000.0;
  }
  expect_none(all);
}

TEST(WaitGraph, ARecordTravelsWhole) {
  auto all = healthy_world(2);
  all[1].groups[0].last.back().missing = {0};
  RankState copy;
  from_json(nlohmann::json::parse(to_json(all[1]).dump()), copy);
  EXPECT_EQ(copy.place, all[1].place);
  ASSERT_EQ(copy.groups.size(), 1U);
  EXPECT_EQ(copy.groups[0].last, all[1].groups[0].last);
  EXPECT_EQ(copy.groups[0].ranks, all[1].groups[0].ranks);
  EXPECT_EQ(copy.limit, all[1].limit);
  EXPECT_NE(dump_text(all).find("waits for rank 0"), std::string::npos) << dump_text(all);
}

}  // namespace
}  // namespace tessera

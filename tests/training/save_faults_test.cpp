// Saves that fail or take long, of the program itself: what the run says, what it keeps, and that
// it goes on when the fault is gone, with an unbroken run's numbers. faulty_calls.cpp stands in for
// the file system.
#include "training/save_faults.h"

namespace tessera {
namespace {

struct Fault {
  const char* rule;
  const char* reason;
  bool async;  // the save runs beside training
  int ranks = 1;
  std::string text() const { return std::string(rule) + (async ? ", beside training" : ""); }
};

// Of the save of step 2.
const Fault kFaults[] = {
    {"write *step-00000002.partial* ENOSPC", "No space left on device", true},
    {"write *step-00000002.partial* ENOSPC", "No space left on device", false},
    {"write *step-00000002.partial* EDQUOT", "Disk quota exceeded", true},
    {"mkdir *step-00000002.partial EROFS", "Read-only file system", true},
    {"fsync *step-00000002.partial/rank-00000.safetensors EIO", "Input/output error", false},
    {"open,fopen *step-00000002.partial*manifest.json* ENOSPC", "No space left on device", true},
    {"rename *step-00000002.partial* EACCES", "Permission denied", false},
    {"open *step-00000002.partial/rank-00001.safetensors EACCES", "Permission denied", true, 2},
    {"write *step-00000002.partial/rank-00001.safetensors EIO", "Input/output error", false, 2},
};

TEST_F(SaveFaults, AFailedSaveEndsTheRunAndLeavesTheOneBefore) {
  const std::string whole[] = {"", unbroken(1, 3), unbroken(2, 3)};
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.text());
    fs::remove_all(folder_ / "run");
    const Result result = train(fault.rule, fault.ranks, keys(fault.async));
    EXPECT_CODE(result, 1);
    EXPECT_HAS(result, "step-00000002");
    EXPECT_HAS(result, fault.reason);
    EXPECT_TRUE(has("step-00000001"));
    EXPECT_EQ(latest(), "step-00000001\n");
    EXPECT_EQ(unfinished(), std::vector<std::string>{});
    const Result again = train("", fault.ranks, keys(fault.async));
    EXPECT_CODE(again, 0);
    EXPECT_HAS(again, "step-00000001 at step 1");
    EXPECT_EQ(trace_of(folder_ / "run"), whole[fault.ranks]);
  }
}

TEST_F(SaveFaults, AsAWarningTrainingGoesOnUntilASaveSucceeds) {
  const std::string whole[] = {"", unbroken(1, 6), unbroken(2, 6)};
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.text());
    fs::remove_all(folder_ / "run");
    // The saves of steps 2 and 3.
    std::string rule = fault.rule;
    rule.replace(rule.find("00000002"), 8, "0000000[23]");
    const Result result = train(rule, fault.ranks, keys(fault.async, "warn", 6));
    EXPECT_CODE(result, 0);
    EXPECT_HAS(result, "step-00000002");
    EXPECT_HAS(result, "step-00000003");
    EXPECT_HAS(result, fault.reason);
    EXPECT_GE(warned_lines(result), 1);
    EXPECT_TRUE(has("step-00000006"));
    EXPECT_EQ(latest(), "step-00000006\n");
    EXPECT_EQ(unfinished(), std::vector<std::string>{});
    EXPECT_EQ(trace_of(folder_ / "run"), whole[fault.ranks]);
  }
}

TEST_F(SaveFaults, ARunWhoseLastSaveFailedEndsWithAnError) {
  const std::string whole = unbroken(1, 5);
  for (const bool async : {true, false}) {
    SCOPED_TRACE(async);
    fs::remove_all(folder_ / "run");
    const Result result =
        train("write *step-0000000[345].partial* ENOSPC", 1, keys(async, "warn", 5));
    EXPECT_CODE(result, 1);
    EXPECT_HAS(result, "step-00000005");
    EXPECT_HAS(result, "No space left on device");
    EXPECT_TRUE(has("step-00000002"));
    EXPECT_EQ(latest(), "step-00000002\n");
    EXPECT_EQ(unfinished(), std::vector<std::string>{});
    const Result again = train("", 1, keys(async, "warn", 5));
    EXPECT_CODE(again, 0);
    EXPECT_HAS(again, "step-00000002 at step 2");
    EXPECT_EQ(trace_of(folder_ / "run"), whole);
  }
}

// With keep 1, what is whole goes only when a newer one is.
TEST_F(SaveFaults, NothingWholeIsRemovedForASaveThatFails) {
  for (const bool async : {true, false}) {
    fs::remove_all(folder_ / "run");
    const Result result = train(
        "fsync *step-00000002.partial/rank-00000.safetensors kill; unlink *step-00000001/* kill", 1,
        keys(async));
    EXPECT_CODE(result, 128 + SIGKILL);
    EXPECT_TRUE(has("step-00000001/manifest.json"));
    EXPECT_TRUE(has("step-00000002.partial"));
    EXPECT_CODE(train("", 1, keys(async)), 0);
    EXPECT_EQ(unfinished(), std::vector<std::string>{});
  }
}

// ---- What is slow, or appears late ------------------------------------------------------------

// Order in the output, not times: steps after a save are told before the save is.
TEST_F(SaveFaults, TheLoopDoesNotWaitForASlowDisk) {
  for (const char* slow : {"fsync *step-00000002.partial/rank-00000.safetensors delay=1000",
                           "fsync *step-00000002.partial/*manifest.json* delay=1000"}) {
    SCOPED_TRACE(slow);
    for (const bool async : {true, false}) {
      fs::remove_all(folder_ / "run");
      const Result result = train(slow, 1, keys(async, "stop", 6) + " --set checkpoint.every=2");
      EXPECT_CODE(result, 0);
      EXPECT_EQ(line_of_step(result, 3) < line_of_save(result, "step-00000002"), async)
          << result.text;
      EXPECT_TRUE(has("step-00000006"));
    }
  }
}

// The states are larger than the memory for copies, and the run folder's file system is slow: what
// goes to the node's own disk first frees the loop. Killed while a file is copied from there, the
// run goes on from the checkpoint before, and nothing stays on that disk.
TEST_F(SaveFaults, AStagingFolderFreesTheLoop) {
  const std::string more =
      " --set model.hidden_size=128 --set model.intermediate_size=256 --set checkpoint.every=2 "
      "--set checkpoint.staging_mib=1 --set checkpoint.staging_dir=local";
  const std::string copy = "write */run/checkpoints/step-0000000%.partial/rank-00000.safetensors";
  const auto of_step = [&](const char* digit, const char* effect) {
    return std::string(copy).replace(copy.find('%'), 1, digit) + effect;
  };
  const Result result = train(of_step("2", " delay=300"), 1, keys(true, "stop", 6) + more);
  EXPECT_CODE(result, 0);
  EXPECT_LT(line_of_step(result, 3), line_of_save(result, "step-00000002")) << result.text;
  EXPECT_TRUE(has("step-00000006"));
  EXPECT_TRUE(fs::is_empty(folder_ / "local"));
  const std::string whole = trace_of(folder_ / "run");

  fs::remove_all(folder_ / "run");
  const Result killed = train(of_step("4", " kill"), 1, keys(true, "stop", 6) + more);
  EXPECT_CODE(killed, 128 + SIGKILL);
  EXPECT_FALSE(fs::is_empty(folder_ / "local"));
  EXPECT_EQ(latest(), "step-00000002\n");
  const Result again = train("", 1, keys(true, "stop", 6) + more);
  EXPECT_CODE(again, 0);
  EXPECT_HAS(again, "step-00000002 at step 2");
  EXPECT_TRUE(fs::is_empty(folder_ / "local"));
  EXPECT_EQ(trace_of(folder_ / "run"), whole);
}

// As on a network file system: rank 0 does not see at once what rank 1 has written, nor rank 1 the
// folder that rank 0 has made.
TEST_F(SaveFaults, WhatAppearsLateIsWaitedFor) {
  const std::string whole = unbroken(2, 3);
  for (const char* late : {"stat *step-00000002.partial/rank-00001.safetensors ENOENT nth=1 rank=0",
                           "stat *step-00000002.partial ENOENT nth=1 rank=1"}) {
    SCOPED_TRACE(late);
    fs::remove_all(folder_ / "run");
    const Result result = train(late, 2, keys(true));
    EXPECT_CODE(result, 0);
    EXPECT_TRUE(has("step-00000003"));
    EXPECT_EQ(trace_of(folder_ / "run"), whole);
  }
}

}  // namespace
}  // namespace tessera

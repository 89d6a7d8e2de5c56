// How a start ended: what outcome.json says, who of several ranks that fail speaks, and what is
// counted. The program itself is in outcome_run_test.cpp.
#include "training/output/outcome.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/exit_codes.h"
#include "base/files/files.h"
#include "base/files/folder_lock.h"
#include "base/process/host_name.h"
#include "training/output/start_record.h"
#include "training/start/count_start.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Outcomes : public testing::Test {
 protected:
  Outcomes() {
    fs::create_directories(folder_ / "logs");
    for (const char* name : kVariables) unsetenv(name);
  }
  ~Outcomes() override {
    for (const char* name : kVariables) unsetenv(name);
  }

  static nlohmann::json read(const fs::path& run_dir) {
    return nlohmann::json::parse(read_small_file(run_dir / "logs/outcome.json", 1 << 16));
  }
  nlohmann::json said() const { return read(folder_.path()); }

  Outcome failure(int64_t start, int rank, const std::string& cause) const {
    Outcome outcome;
    outcome.reason = "error";
    outcome.cause = cause;
    outcome.rank = rank;
    outcome.host = "n" + std::to_string(rank);
    outcome.step = 812;
    outcome.newest_checkpoint = 800;
    outcome.start = start;
    return outcome;
  }

  // A record of a rank whose run folder is this test's, and what it says.
  std::unique_ptr<StartRecord> record(int rank, int ranks, int64_t start = 1) {
    StartRecord::Voice voice;
    voice.say = [this](const std::string& text) { spoken_.push_back(text); };
    voice.stack = [] { return "thrown at:\n  somewhere"; };
    auto made = std::make_unique<StartRecord>(voice);
    made->set_world(rank, ranks);
    if (start > 0) made->set_folder(folder_.path(), start, "");
    return made;
  }

  static constexpr const char* kVariables[] = {"SLURM_JOB_ID", "SLURM_RESTART_COUNT",
                                               "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"};
  TemporaryFolder folder_;
  std::vector<std::string> spoken_;
};

TEST_F(Outcomes, AreOneObjectWithEveryKey) {
  setenv("SLURM_JOB_ID", "125", 1);
  setenv("SLURM_ARRAY_JOB_ID", "123", 1);
  setenv("SLURM_ARRAY_TASK_ID", "4", 1);
  setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_TRUE(record_outcome(folder_.path(), failure(4, 3, "[comm] a\nb")));
  nlohmann::json json = said();
  EXPECT_EQ(json["time"].get<std::string>().size(), 20u);
  json.erase("time");
  EXPECT_EQ(json, nlohmann::json({{"outcome", "failed"},
                                  {"exit_code", 1},
                                  {"reason", "error"},
                                  {"cause", "[comm] a b"},
                                  {"rank", 3},
                                  {"host", "n3"},
                                  {"step", 812},
                                  {"newest_checkpoint", 800},
                                  {"start", 4},
                                  {"job", "123_4"},
                                  {"restart", 1}}));
  Outcome done;
  done.kind = Outcome::Kind::kDone;
  done.start = 5;
  for (const char* name : kVariables) unsetenv(name);
  EXPECT_TRUE(record_outcome(folder_.path(), done));
  json = said();
  EXPECT_EQ(json["outcome"], "done");
  EXPECT_EQ(json["exit_code"], 0);
  for (const char* none : {"rank", "host", "job", "restart"}) EXPECT_TRUE(json[none].is_null());
}

TEST_F(Outcomes, TheFirstFailureOfAStartStands) {
  EXPECT_TRUE(record_outcome(folder_.path(), failure(2, 3, "first")));
  EXPECT_FALSE(record_outcome(folder_.path(), failure(2, 1, "because of the first")));
  Outcome done;
  done.kind = Outcome::Kind::kDone;
  done.start = 2;
  EXPECT_FALSE(record_outcome(folder_.path(), done)) << "the start has failed";
  EXPECT_EQ(said()["cause"], "first");
  EXPECT_FALSE(record_outcome(folder_.path(), failure(1, 0, "late"))) << "of an earlier start";
  EXPECT_EQ(said()["cause"], "first");
  EXPECT_TRUE(record_outcome(folder_.path(), failure(3, 1, "next")));
  EXPECT_EQ(said()["rank"], 1);
  Outcome replaced;
  replaced.kind = Outcome::Kind::kReplaced;
  replaced.start = 4;
  EXPECT_FALSE(record_outcome(folder_.path(), replaced)) << "the file is the other start's";
  EXPECT_EQ(said()["cause"], "next");
}

// No error of recording may hide the one that is recorded.
TEST_F(Outcomes, WhatCannotBeWrittenThrowsNothing) {
  write_file_atomic(folder_ / "file", "");
  EXPECT_FALSE(record_outcome(folder_ / "file", failure(1, 0, "x")));
  EXPECT_TRUE(claim_failure(folder_ / "file", failure(1, 0, "x")).ours);
}

TEST_F(Outcomes, LongAndOddCausesAreOneLine) {
  EXPECT_EQ(one_line("a\n\tb\n"), "a  b");
  EXPECT_EQ(one_line(std::string(2000, 'x')).size(), 1004u);
  EXPECT_TRUE(record_outcome(folder_.path(), failure(1, 0, "\xff\xfe")));
  EXPECT_TRUE(said().is_object()) << "no UTF-8, but JSON";
}

// ---- Who speaks ------------------------------------------------------------------------------

TEST_F(Outcomes, OfSeveralRanksThatFailTheFirstSpeaks) {
  const auto culprit = record(3, 4), other = record(1, 4), user = record(2, 4);
  culprit->set_mesh_place("dp 1, tp 1");
  culprit->set_step(812);
  culprit->set_saved(800);
  EXPECT_EQ(culprit->failed(UserError("[x] it broke")), kExitUserError);
  EXPECT_EQ(other->failed(Error("[comm] rank 3 is gone")), kExitUserError) << "as the first";
  ASSERT_EQ(spoken_.size(), 1u);
  const std::string name = "rank 3 (" + host_name() + ", dp 1, tp 1)";
  EXPECT_EQ(spoken_[0], "error: " + name + " after step 812: [x] it broke");
  const nlohmann::json json = said();
  EXPECT_EQ(json["outcome"], "user_error");
  EXPECT_EQ(json["rank"], 3);
  EXPECT_EQ(json["host"], host_name());
  EXPECT_EQ(json["step"], 812);
  EXPECT_EQ(json["newest_checkpoint"], 800);
  // Each has its own words in its own file.
  const auto log = [&](const char* file) {
    return read_small_file(folder_ / "logs" / "start-0001" / file, 1 << 16);
  };
  EXPECT_NE(log("rank-00003.log").find("it broke"), std::string::npos);
  EXPECT_NE(
      log("rank-00001.log").find("rank 3 (" + host_name() + ") failed: [x] it broke; rank 1 ("),
      std::string::npos)
      << log("rank-00001.log");
  EXPECT_NE(log("rank-00001.log").find("rank 3 is gone"), std::string::npos);
}

TEST_F(Outcomes, AnErrorIsToldOnce) {
  const auto rank = record(0, 1);
  EXPECT_EQ(rank->failed(Error("[x] once")), kExitFailed);
  EXPECT_EQ(rank->failed(UserError("[x] twice")), kExitFailed);
  EXPECT_EQ(spoken_, (std::vector<std::string>{"error: [x] once"}));
}

// All ranks throw what agree() has gathered; the one on which it happened tells it.
TEST_F(Outcomes, AnErrorOfAllRanksIsToldByTheOneThatHasIt) {
  const ErrorOfAllRanks<Error> error("[x] disk full (on rank 1)", 1);
  const auto first = record(1, 2), second = record(0, 2);
  first->failed(error);
  second->failed(error);
  EXPECT_EQ(spoken_, (std::vector<std::string>{"error: [x] disk full (on rank 1)"}));
  EXPECT_EQ(said()["rank"], 1);
  EXPECT_EQ(said()["host"], host_name());
}

TEST_F(Outcomes, AnErrorOfNoSingleRankNamesNone) {
  const auto rank = record(0, 2);
  rank->failed(ErrorOfAllRanks<Error>("[train] loss nan", -1));
  EXPECT_EQ(spoken_, (std::vector<std::string>{"error: [train] loss nan"}));
  EXPECT_TRUE(said()["rank"].is_null());
  EXPECT_TRUE(said()["host"].is_null());
}

TEST_F(Outcomes, WhatNobodyExpectedHasAStack) {
  record(0, 1)->failed(std::out_of_range("vector"));
  record(0, 1, 2)->failed(Error("[x] expected"));
  EXPECT_EQ(spoken_, (std::vector<std::string>{"error: vector\nthrown at:\n  somewhere",
                                               "error: [x] expected"}));
}

// Before the run folder is owned nothing is written.
TEST_F(Outcomes, AStartWithoutItsFolderLeavesNoFile) {
  const auto rank = record(0, 2, 0);
  EXPECT_EQ(rank->failed(UserError("[x] wrong")), kExitUserError);
  EXPECT_EQ(spoken_, (std::vector<std::string>{"error: [x] wrong"}));
  EXPECT_TRUE(fs::is_empty(folder_ / "logs"));
}

TEST_F(Outcomes, AStartThatWasReplacedWritesNothing) {
  const auto rank = record(0, 1);
  EXPECT_EQ(rank->failed(ReplacedError("[files] taken over")), kExitReplaced);
  EXPECT_EQ(spoken_.size(), 1u);
  EXPECT_TRUE(fs::is_empty(folder_ / "logs"));
}

// Whatever a rank of it fails of: the folder's lock says whose it is.
TEST_F(Outcomes, ARankOfAStartThatWasReplacedWritesNothingEither) {
  const auto first = std::make_unique<FolderLock>(folder_.path());
  const auto rank = record(1, 2, 0);
  rank->set_folder(folder_.path(), 1, first->token());
  EXPECT_FALSE(FolderLock::names_other(folder_.path(), first->token()));
  EXPECT_FALSE(FolderLock::names_other(folder_.path(), ""));
  ProcessIdentity newer = ProcessIdentity::own();
  write_file_atomic(folder_ / ".lock", newer.to_text() + "\n");
  EXPECT_EQ(rank->failed(Error("[comm] rank 0 is gone")), kExitReplaced);
  EXPECT_TRUE(fs::is_empty(folder_ / "logs"));
  const auto done = record(0, 2, 0);
  done->set_folder(folder_.path(), 1, first->token());
  EXPECT_THROW(done->done(), ReplacedError);
  EXPECT_TRUE(fs::is_empty(folder_ / "logs"));
}

TEST(ThrownErrors, KeepTheMarkOfAllRanksUnderAnotherText) {
  try {
    throw_with_text<UserError>(ErrorOfAllRanks<UserError>("a", 2), "b");
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "b");
    ASSERT_NE(dynamic_cast<const OfAllRanks*>(&error), nullptr);
    EXPECT_EQ(dynamic_cast<const OfAllRanks*>(&error)->culprit(), 2);
  }
  EXPECT_THROW(throw_with_text<UserError>(Error("a"), "b"), UserError);
}

// ---- Starts ----------------------------------------------------------------------------------

TEST_F(Outcomes, StartsAreCounted) {
  EXPECT_EQ(count_start(folder_.path(), false, 8, 2).number, 1);
  const StartCount second = count_start(folder_.path(), true, 8, 2);
  EXPECT_EQ(second.number, 2);
  EXPECT_TRUE(second.replaced_one);
  // A power failure has torn the last line.
  std::ofstream(folder_ / "logs/starts", std::ios::app) << "{\"start\": 3, \"ti";
  const StartCount third = count_start(folder_.path(), false, 8, 2);
  EXPECT_EQ(third.number, 3);
  EXPECT_EQ(third.warning, "");
  EXPECT_TRUE(third.replaced_one) << "the one that was replaced may still live";
  EXPECT_EQ(count_start(folder_.path(), false, 8, 2).number, 4);
  // The list is gone, but not what starts have left: their numbers are not given out again.
  fs::remove(folder_ / "logs/starts");
  fs::create_directories(folder_ / "logs/start-0007");
  EXPECT_EQ(count_start(folder_.path(), false, 8, 2).number, 8);
  fs::remove(folder_ / "logs/starts");
  fs::create_directories(folder_ / "logs/starts");
  const StartCount unwritten = count_start(folder_.path(), false, 8, 2);
  EXPECT_EQ(unwritten.number, 8);
  EXPECT_NE(unwritten.warning, "");
}

// ---- The real train() ------------------------------------------------------------------------

TEST_F(Outcomes, OfARunThatIsDoneAndStartedAgain) {
  Config config = tiny_config(folder_, "run");
  config.schedule.warmup_steps = 0;
  config.training.steps = 2;
  run(config);
  nlohmann::json json = read(config.run.dir);
  EXPECT_EQ(json["outcome"], "done");
  EXPECT_EQ(json["step"], 2);
  EXPECT_EQ(json["newest_checkpoint"], 2);
  EXPECT_EQ(json["start"], 1);
  run(config);
  json = read(config.run.dir);
  EXPECT_EQ(json["outcome"], "done") << "a finished run that is started again";
  EXPECT_EQ(json["start"], 2);
  const std::string log = read_small_file(fs::path(config.run.dir) / "logs/train.log", 1 << 20);
  for (const char* line : {"start 1: ", "start 2: ", ", host ", ", 1 rank on 1 node\n"})
    EXPECT_NE(log.find(line), std::string::npos) << log;
}

TEST_F(Outcomes, OfAStopThatTheConfigurationAsksFor) {
  Config config = tiny_config(folder_, "run");
  config.training.stop_after = 3;
  EXPECT_EQ(run(config).outcome, TrainOutcome::kStoppedAfterSave);
  const nlohmann::json json = read(config.run.dir);
  EXPECT_EQ(json["outcome"], "stopped");
  EXPECT_EQ(json["exit_code"], 3);
  EXPECT_EQ(json["reason"], "stop_after");
  EXPECT_EQ(json["step"], 3);
}

TEST_F(Outcomes, OfAnErrorOnOneRankNameTheRankAndTheStep) {
  Config config = tiny_config(folder_, "run");
  config.parallel.dp_shard = 2;
  config.checkpoint.every = 1;
  TrainHooks hooks;
  hooks.gradients_ready = [](int64_t step, Mesh& mesh, const std::vector<FlatBucket*>&) {
    if (step == 3 && mesh.world().rank() == 1) throw std::runtime_error("the hook breaks");
  };
  EXPECT_ANY_THROW(run(config, hooks));
  const nlohmann::json json = read(config.run.dir);
  EXPECT_EQ(json["outcome"], "failed");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["reason"], "error");
  EXPECT_EQ(json["cause"], "the hook breaks");
  EXPECT_EQ(json["rank"], 1);
  EXPECT_EQ(json["host"], host_name());
  EXPECT_EQ(json["step"], 2);
  EXPECT_TRUE(fs::exists(fs::path(config.run.dir) / "logs/start-0001/rank-00001.log"));
}

TEST_F(Outcomes, OfAMistakeThatIsFoundInTheRunFolder) {
  Config config = tiny_config(folder_, "run");
  config.training.steps = 2;
  run(config);
  config.optimizer.lr *= 2;  // needs checkpoint.allow_change
  config.training.steps = 4;
  EXPECT_THROW(run(config), UserError);
  const nlohmann::json json = read(config.run.dir);
  EXPECT_EQ(json["outcome"], "user_error");
  EXPECT_EQ(json["exit_code"], 2);
  EXPECT_EQ(json["start"], 2);
}

}  // namespace
}  // namespace tessera

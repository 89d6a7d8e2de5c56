// What a rollback has found outlives the process: checkpoints/rollback.json.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <fstream>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/files/files.h"
#include "training/loop/progress.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A checkpoint every four of ten steps.
Config rollback_config(const TemporaryFolder& folder, const std::string& name) {
  Config config = tiny_config(folder, name);
  config.training.on_nonfinite = OnNonfinite::kRollback;
  config.checkpoint.every = 4;
  return config;
}

std::filesystem::path checkpoints_of(const Config& config) {
  return std::filesystem::path(config.run.dir) / "checkpoints";
}

Progress progress_at(const Config& config, int64_t step) {
  return progress_of(read_manifest(checkpoints_of(config) / step_dir_name(step)));
}

std::string log_of(const Config& config) {
  return read_small_file(std::filesystem::path(config.run.dir) / "logs/train.log", 1 << 20);
}

// Spoils step `bad` the first `times` times that it is reached, on the last rank. `killed`: the
// process then ends at the first step after the last rollback, before anything is saved.
TrainHooks failing(int64_t bad, int times, bool killed = false) {
  struct Count {
    int failed = 0;
  };
  const auto counts = std::make_shared<std::vector<Count>>(8);
  return {[=](int64_t step, Mesh& mesh, const std::vector<FlatBucket*>& buckets) {
    Count& count = (*counts)[static_cast<size_t>(mesh.world().rank())];
    if (killed && count.failed == times) throw Error("killed");
    if (step != bad || count.failed == times) return;
    ++count.failed;
    if (mesh.world().rank() == mesh.world().size() - 1)
      for (FlatBucket* bucket : buckets) bucket->grad().fill_(kNan);
  }};
}

// The message of any error, also of one that is no user's.
std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Rollback, AKillBeforeTheNextCheckpointForgetsNothing) {
  TemporaryFolder folder;
  const TinyRun whole = run(rollback_config(folder, "whole"), failing(6, 1));
  Config config = rollback_config(folder, "killed");
  EXPECT_NE(failure_of([&] { run(config, failing(6, 1, true)); }).find("killed"),
            std::string::npos);
  const TinyRun resumed = run(config);  // nothing fails any more, and the samples stay out
  expect_identical(resumed, whole);
  ASSERT_EQ(resumed.events.size(), 1U);
  EXPECT_EQ(resumed.events[0], whole.events[0]);
  EXPECT_EQ(progress_at(config, 8).skipped, (std::vector<SampleRange>{{80, 96}}));
  EXPECT_EQ(read_states(config, 10), read_states(rollback_config(folder, "whole"), 10));
  EXPECT_NE(log_of(config).find("1 rollbacks so far, the last from step 6"), std::string::npos);
}

TEST(Rollback, OnAnotherMeshTheSameSamplesStayOut) {
  TemporaryFolder folder;
  const TinyRun whole = run(rollback_config(folder, "whole"), failing(6, 1));
  Config config = rollback_config(folder, "moved");
  config.parallel.dp_shard = 2;
  config.parallel.tp = 2;
  failure_of([&] { run(config, failing(6, 1, true)); });
  config.parallel.dp_shard = 3;
  config.parallel.tp = 1;
  expect_close(run(config), whole, 1e-5);
}

TEST(Rollback, FailuresAreCountedAcrossKills) {
  TemporaryFolder folder;
  Config config = rollback_config(folder, "run");
  config.training.max_skips = 2;
  for (int i = 0; i < 2; ++i)
    EXPECT_NE(failure_of([&] { run(config, failing(6, 1, true)); }).find("killed"),
              std::string::npos);
  EXPECT_NE(failure_of([&] {
              run(config, failing(6, 1));
            }).find("number 3 in a row, and training.max_skips is 2"),
            std::string::npos);
}

// A good step before the one that failed does not end the row, in the next process either.
TEST(Rollback, FailuresAreCountedAcrossASaveAndARestart) {
  TemporaryFolder folder;
  Config config = rollback_config(folder, "run");
  config.training.max_skips = 1;
  config.checkpoint.every = 3;
  // Step 8 fails, and training goes back to 6.
  EXPECT_NE(failure_of([&] { run(config, failing(8, 1, true)); }).find("killed"),
            std::string::npos);
  config.training.stop_after = 7;
  run(config);  // step 7 is good and saved
  EXPECT_EQ(progress_at(config, 7).failures_in_a_row, 1);
  EXPECT_EQ(progress_at(config, 7).last_failed_step, 8);
  config.training.stop_after.reset();
  EXPECT_NE(failure_of([&] {
              run(config, failing(8, 1));
            }).find("number 2 in a row, and training.max_skips is 1"),
            std::string::npos);
}

TEST(Rollback, ALaterCheckpointKnowsBetterAndAnOlderOneLearns) {
  TemporaryFolder folder;
  Config config = rollback_config(folder, "run");
  config.training.stop_after = 8;
  run(config, failing(6, 1));
  config.training.stop_after.reset();
  run(config);  // from step 8, which has passed the failure
  EXPECT_EQ(progress_at(config, 10).failures_in_a_row, 0);
  EXPECT_EQ(progress_at(config, 10).rollbacks, 1);
  for (const int64_t step : {8, 10})
    std::filesystem::remove_all(checkpoints_of(config) / step_dir_name(step));
  run(config);  // from step 4, of before the rollback
  EXPECT_EQ(progress_at(config, 10).skipped, (std::vector<SampleRange>{{80, 96}}));
  EXPECT_EQ(progress_at(config, 10).rollbacks, 1);
}

TEST(Rollback, ARunThatGoesOnElsewhereTakesTheRecordAlong) {
  TemporaryFolder folder;
  Config config = rollback_config(folder, "run");
  failure_of([&] { run(config, failing(6, 1, true)); });
  Config other = rollback_config(folder, "other");
  other.checkpoint.resume = checkpoints_of(config) / step_dir_name(4);
  run(other);
  EXPECT_EQ(progress_at(other, 10).skipped, (std::vector<SampleRange>{{80, 96}}));
  // Counters of another order name other samples.
  Config seeded = rollback_config(folder, "seeded");
  seeded.checkpoint.resume = other.checkpoint.resume;
  seeded.run.seed = 7;
  seeded.checkpoint.allow_change = {"run.seed"};
  run(seeded);
  EXPECT_TRUE(progress_at(seeded, 10).skipped.empty());
  EXPECT_NE(log_of(seeded).find("names samples of another order"), std::string::npos);
  // And where the checkpoint itself holds the list.
  seeded.run.dir = folder / "seeded-later";
  seeded.checkpoint.resume = checkpoints_of(other) / step_dir_name(8);
  run(seeded);
  EXPECT_TRUE(progress_at(seeded, 10).skipped.empty());
  EXPECT_NE(log_of(seeded).find("the order of samples is another one now"), std::string::npos);
}

TEST(Rollback, AFolderThatIsUsedAnewDoesNotTakeIt) {
  TemporaryFolder folder;
  Config config = rollback_config(folder, "run");
  failure_of([&] { run(config, failing(6, 1, true)); });
  std::filesystem::remove_all(checkpoints_of(config) / step_dir_name(4));
  config.checkpoint.resume = "none";
  const TinyRun anew = run(config);
  expect_identical(anew, run(rollback_config(folder, "plain")));
  EXPECT_FALSE(std::filesystem::exists(checkpoints_of(config) / "rollback.json"));
  EXPECT_TRUE(std::filesystem::exists(checkpoints_of(config) / "rollback.json.old"));
}

TEST(Rollback, ADamagedRecordIsAnErrorThatNamesIt) {
  TemporaryFolder folder;
  Config config = rollback_config(folder, "run");
  failure_of([&] { run(config, failing(6, 1, true)); });
  const std::filesystem::path file = checkpoints_of(config) / "rollback.json";
  const std::string sound = read_small_file(file, 1 << 20);
  std::string edited = sound;
  edited.replace(edited.find("80"), 2, "64");
  for (const std::string& text : {std::string(), sound.substr(0, 100), std::string(40, '\0'),
                                  std::string("{}"), std::string("[1]"), edited}) {
    std::ofstream(file, std::ios::binary) << text;
    bool user_error = false;
    std::string message;
    try {
      run(config);
    } catch (const UserError& error) {
      user_error = true;
      message = error.what();
    }
    EXPECT_TRUE(user_error) << text;
    EXPECT_NE(message.find(file.string() + " cannot be used"), std::string::npos) << message;
    EXPECT_NE(message.find("or remove it, and the run meets those samples again"),
              std::string::npos)
        << message;
  }
  std::filesystem::remove(file);
  EXPECT_TRUE(run(config).events.size() == 1U);
  EXPECT_TRUE(progress_at(config, 10).skipped.empty());
}

}  // namespace
}  // namespace tessera

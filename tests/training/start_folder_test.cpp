// Where a run begins whose run folder holds steps already: by what checkpoints say of their past,
// never by what paths look like.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files/files.h"
#include "support/error_of.h"
#include "training/start/run_record.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

std::filesystem::path step_dir(const Config& config, int64_t step) {
  return std::filesystem::path(config.run.dir) / "checkpoints" / step_dir_name(step);
}

// Runs `steps` of ten steps in folder/NAME.
Config run_to(const TemporaryFolder& folder, const std::string& name, int64_t steps) {
  Config config = tiny_config(folder, name);
  config.checkpoint.every = 2;
  config.training.stop_after = steps;
  run(config);
  return config;
}

// A run in folder/NAME that goes on from `source`.
Config going_on(const TemporaryFolder& folder, const std::string& name,
                const std::filesystem::path& source) {
  Config config = tiny_config(folder, name);
  config.checkpoint.resume = source;
  return config;
}

TEST(StartFolder, ARequeuedJobGoesOnFromItsOwnStepsWhereverThePathLies) {
  TemporaryFolder folder;
  const Config source = run_to(folder, "source", 4);
  Config config = going_on(folder, "second", step_dir(source, 4));
  config.training.stop_after = 6;
  run(config);
  // Moved and named by another path: the same checkpoint.
  std::filesystem::create_directories(folder / "archive");
  std::filesystem::rename(step_dir(source, 4), folder / "archive/step-00000004");
  config.checkpoint.resume = folder / "archive/../archive/step-00000004";
  config.training.stop_after = 8;
  const TinyRun again = run(config);
  ASSERT_EQ(again.steps.size(), 4U);  // 5 to 8, none of them twice
  EXPECT_EQ(again.steps[0].at("step"), 5);
  const auto record = run_record_of(read_manifest(step_dir(config, 8)));
  ASSERT_TRUE(record);
  ASSERT_EQ(record->starts.size(), 1U);
  EXPECT_EQ(record->starts[0].key, "checkpoint.resume");
  EXPECT_EQ(record->starts[0].step, 4);
}

TEST(StartFolder, AnUnrelatedRunInTheFolderIsRefusedNewerOrOlder) {
  TemporaryFolder folder;
  const Config source = run_to(folder, "source", 4);
  for (const int64_t other : {2, 4, 8}) {
    SCOPED_TRACE(other);
    Config occupied = tiny_config(folder, fmt::format("occupied-{}", other));
    occupied.run.seed = 7;
    occupied.training.stop_after = other;
    run(occupied);
    Config config = going_on(folder, fmt::format("occupied-{}", other), step_dir(source, 4));
    const std::string error = error_of([&] { run(config); });
    EXPECT_NE(
        error.find(fmt::format("holds step {} of a run that began with random weights", other)),
        std::string::npos)
        << error;
    EXPECT_NE(error.find("Choose another run.dir"), std::string::npos) << error;
  }
}

TEST(StartFolder, ARunThatBeganElsewhereIsRefusedAndNamed) {
  TemporaryFolder folder;
  const Config first = run_to(folder, "first", 4), other = run_to(folder, "other", 6);
  Config config = going_on(folder, "second", step_dir(first, 4));
  config.training.stop_after = 8;
  run(config);
  config.checkpoint.resume = step_dir(other, 6);
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("step 8 of a run that began with checkpoint.resume at the checkpoint of "
                       "step 4, " +
                       read_manifest(step_dir(first, 4)).id),
            std::string::npos)
      << error;
}

TEST(StartFolder, ACopyOfTheFoldersOwnNewestStepIsThatStep) {
  TemporaryFolder folder;
  Config config = run_to(folder, "run", 4);
  std::filesystem::copy(step_dir(config, 4), folder / "step-00000004");
  config.checkpoint.resume = folder / "step-00000004";
  config.training.stop_after = 6;
  EXPECT_EQ(run(config).steps.size(), 6U);
  config.training.stop_after.reset();
  EXPECT_EQ(run(config).steps.size(), 10U);  // and again after a requeue
}

TEST(StartFolder, AStepOfItsOwnGoesOnOnceThePathWasTaken) {
  TemporaryFolder folder;
  Config config = run_to(folder, "run", 6);
  const auto checkpoints = std::filesystem::path(config.run.dir) / "checkpoints";
  config.checkpoint.resume = step_dir(config, 4);
  config.training.stop_after = 8;
  EXPECT_NE(error_of([&] { run(config); }).find("would mix"), std::string::npos);
  std::filesystem::rename(step_dir(config, 6), folder / "away");  // as the message says
  run(config);
  config.training.stop_after.reset();
  EXPECT_EQ(run(config).steps.size(), 10U);  // the same command: from step 8
}

TEST(StartFolder, AFolderOfAnOlderProgramIsRefusedWithAWayOut) {
  TemporaryFolder folder;
  const Config source = run_to(folder, "source", 4);
  Config config = going_on(folder, "second", step_dir(source, 4));
  config.training.stop_after = 6;
  run(config);
  Manifest manifest = read_manifest(step_dir(config, 6));
  manifest.run = nullptr;
  write_manifest(step_dir(config, 6), manifest);
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("a run that does not say where it began"), std::string::npos) << error;
  EXPECT_NE(error.find("resume: auto"), std::string::npos) << error;
  config.checkpoint.resume = "auto";
  config.training.stop_after.reset();
  EXPECT_EQ(run(config).steps.size(), 6U);  // 5 to 10
}

TEST(InitFrom, ARequeuedJobGoesOnAlsoWhenTheWeightsAreGone) {
  TemporaryFolder folder;
  const Config source = run_to(folder, "source", 4);
  Config config = tiny_config(folder, "tuned");
  config.checkpoint.init_from = step_dir(source, 4);
  config.training.stop_after = 4;
  run(config);
  config.training.stop_after = 6;
  EXPECT_EQ(run(config).steps.size(), 6U);
  std::filesystem::remove_all(step_dir(source, 4));
  config.training.stop_after.reset();
  EXPECT_EQ(run(config).steps.size(), 10U);
  const std::string log =
      read_small_file(std::filesystem::path(config.run.dir) / "logs/train.log", 1 << 20);
  EXPECT_NE(log.find("without knowing whether that run began with the weights"), std::string::npos);
}

TEST(InitFrom, AFolderWithARunFromOtherWeightsIsRefused) {
  TemporaryFolder folder;
  const Config source = run_to(folder, "source", 4);
  Config config = run_to(folder, "random", 4);
  config.checkpoint.init_from = step_dir(source, 4);
  std::string error = error_of([&] { run(config); });
  // The source is itself this very run, step for step: only the record tells.
  EXPECT_NE(error.find("is the newest step of a run that began with random weights"),
            std::string::npos)
      << error;
  Config tuned = tiny_config(folder, "tuned");
  tuned.checkpoint.init_from = step_dir(source, 4);
  tuned.training.stop_after = 4;
  run(tuned);
  tuned.checkpoint.init_from = step_dir(source, 2);
  error = error_of([&] { run(tuned); });
  EXPECT_NE(error.find("a run that began with checkpoint.init_from at the checkpoint of step 4"),
            std::string::npos)
      << error;
  tuned.checkpoint.init_from.clear();
  EXPECT_EQ(run(tuned).outcome, TrainOutcome::kDone);
}

}  // namespace
}  // namespace tessera

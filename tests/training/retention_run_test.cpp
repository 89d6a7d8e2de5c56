// Which checkpoints a run keeps, by number and by validation loss, also over resumes and rollbacks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/files/files.h"
#include "checkpoint/store/run_folder.h"
#include "checkpoint/store/validation_losses.h"
#include "support/error_of.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Ten steps, each saved and validated, at a learning rate so large that the loss goes up and down.
Config config_of(const TemporaryFolder& folder, const std::string& name) {
  Config config = tiny_config(folder, name);
  if (!fs::exists(folder / "valid.idx")) write_tokens(folder / "valid", 9 * 16 + 1);
  config.data.valid = {folder / "valid"};
  config.training.global_batch_size = 4;
  config.training.micro_batch_size = 1;
  config.optimizer.lr = 0.1;
  config.eval.every = 1;
  config.eval.batches = 1;
  config.checkpoint.every = 1;
  return config;
}

fs::path checkpoints_of(const Config& config) {
  return fs::path(config.run.dir) / "checkpoints";
}

std::set<int64_t> steps_of(const Config& config) {
  const auto steps = list_run_folder(checkpoints_of(config)).steps;
  return {steps.begin(), steps.end()};
}

std::map<int64_t, double> losses_of(const TinyRun& run) {
  std::map<int64_t, double> losses;
  for (const auto& eval : run.evals) losses[eval.at("step")] = eval.at("eval_loss");
  return losses;
}

// The step with the lowest loss of those given.
int64_t best_of(const std::map<int64_t, double>& losses, const std::set<int64_t>& except = {}) {
  int64_t best = -1;
  for (const auto& [step, loss] : losses)
    if (!except.contains(step) && (best < 0 || loss <= losses.at(best))) best = step;
  return best;
}

TEST(RetentionRun, KeepsTheNewestTheMultiplesAndTheBest) {
  TemporaryFolder folder;
  for (const auto& [dp, tp] : {std::pair{1, 1}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("{} x {}", dp, tp));
    Config config = config_of(folder, fmt::format("run-{}-{}", dp, tp));
    config.parallel.dp_shard = dp;
    config.parallel.tp = tp;
    config.checkpoint.keep = 1;
    config.checkpoint.keep_every = 4;
    config.checkpoint.keep_best = 2;
    const TinyRun done = run(config);
    const auto losses = losses_of(done);
    ASSERT_EQ(losses.size(), 10u);
    EXPECT_EQ(read_validation_losses(checkpoints_of(config)), losses);
    const int64_t best = best_of(losses), second = best_of(losses, {best});
    EXPECT_LT(std::min(best, second), 10) << "the loss only goes down: nothing to choose from";
    EXPECT_EQ(steps_of(config), (std::set<int64_t>{4, 8, 10, best, second}));
  }
}

// A run that stops and goes on keeps what the unbroken one keeps; losses of steps that it has yet
// to make, such as a killed run leaves, count for nothing.
TEST(RetentionRun, AResumedRunKeepsWhatTheUnbrokenOneKeeps) {
  TemporaryFolder folder;
  Config whole = config_of(folder, "whole"), broken = config_of(folder, "broken");
  for (Config* config : {&whole, &broken}) {
    config->checkpoint.keep = 1;
    config->checkpoint.keep_best = 2;
  }
  run(whole);
  broken.training.stop_after = 6;
  run(broken);
  for (const int64_t step : {7, 9, 400}) record_validation_loss(checkpoints_of(broken), step, 0.0);
  broken.training.stop_after.reset();
  run(broken);
  EXPECT_EQ(steps_of(broken), steps_of(whole));
  EXPECT_EQ(read_validation_losses(checkpoints_of(broken)),
            read_validation_losses(checkpoints_of(whole)));
}

TEST(RetentionRun, KeepsTheOneThatItResumedUntilTheNextIsSaved) {
  TemporaryFolder folder;
  Config config = config_of(folder, "run");
  config.training.stop_after = 6;
  run(config);
  config.training.stop_after.reset();
  config.checkpoint.keep = 1;
  TrainHooks hooks;
  hooks.validation_batch = [&](int64_t step, int64_t) {
    if (step == 7) {
      EXPECT_TRUE(steps_of(config).contains(6));
      fail_user("test", "killed");
    }
  };
  EXPECT_NE(error_of([&] { run(config, hooks); }).find("killed"), std::string::npos);
  EXPECT_EQ(steps_of(config), (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  run(config);
  EXPECT_EQ(steps_of(config), std::set<int64_t>{10});
}

// What a rollback goes back behind is made anew, and its losses with it.
TEST(RetentionRun, ARollbackForgetsTheLossesOfStepsThatItUndoes) {
  TemporaryFolder folder;
  Config config = config_of(folder, "run");
  config.checkpoint.every = 4;
  config.checkpoint.keep = 1;
  config.checkpoint.keep_best = 1;
  config.training.on_nonfinite = OnNonfinite::kRollback;
  TrainHooks hooks;
  bool failed = false;
  hooks.gradients_ready = [&](int64_t step, Mesh&, const std::vector<FlatBucket*>& buckets) {
    if (step == 7 && !failed) buckets.front()->grad().fill_(std::nan(""));
    if (step == 7) failed = true;
    if (step == 5 && failed) {
      const auto losses = read_validation_losses(checkpoints_of(config));
      EXPECT_EQ(losses.rbegin()->first, 4);
    }
  };
  const TinyRun done = run(config, hooks);
  EXPECT_EQ(done.events.size(), 1u);
  EXPECT_EQ(read_validation_losses(checkpoints_of(config)), losses_of(done));
  EXPECT_EQ(steps_of(config).count(10), 1u);
}

}  // namespace
}  // namespace tessera

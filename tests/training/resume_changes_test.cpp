// What a run that goes on may change, what then happens, and what its checkpoints say of it.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "support/error_of.h"
#include "training/loop/progress.h"
#include "training/start/run_record.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

std::filesystem::path step_dir(const Config& config, int64_t step) {
  return std::filesystem::path(config.run.dir) / "checkpoints" / step_dir_name(step);
}

std::string log_of(const Config& config) {
  return read_small_file(std::filesystem::path(config.run.dir) / "logs/train.log", 1 << 20);
}

RunRecord record_at(const Config& config, int64_t step) {
  const auto record = run_record_of(read_manifest(step_dir(config, step)));
  EXPECT_TRUE(record);
  return record.value_or(RunRecord{});
}

// Five of its ten steps.
Config half_a_run(const TemporaryFolder& folder, const std::string& name) {
  Config config = tiny_config(folder, name);
  config.training.stop_after = 5;
  run(config);
  config.training.stop_after.reset();
  return config;
}

TEST(Schedule, MoreStepsDoNotHeatTheLearningRateUpAgain) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  run(config);
  config.training.steps = 14;
  const TinyRun more = run(config);
  ASSERT_EQ(more.steps.size(), 14U);
  for (size_t i = 9; i < 14; ++i)
    EXPECT_EQ(more.steps[i].at("lr"), config.schedule.min_lr_ratio * kLearningRate) << i;
  EXPECT_NE(log_of(config).find("spans the 10 steps that the run began with: after them it stays "
                                "at 1.000e-04 (schedule.steps: 14 would span the new number)"),
            std::string::npos);
  EXPECT_EQ(log_of(config).find("warning"), std::string::npos);
  EXPECT_EQ(read_manifest(step_dir(config, 14)).config["schedule"]["steps"], 10);
  config.training.steps = 16;  // and again, now from a run that has been raised already
  EXPECT_EQ(run(config).steps.back().at("lr"), config.schedule.min_lr_ratio * kLearningRate);
}

TEST(Schedule, ALongerOneIsFollowedWithAWarningThatNamesBothRates) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  run(config);
  config.training.steps = 20;
  config.schedule.steps = 20;
  const TinyRun more = run(config);
  const double lr = more.steps[10].at("lr");
  EXPECT_GT(lr, 5e-4);
  const std::string log = log_of(config);
  EXPECT_NE(log.find(fmt::format("warning: the learning rate of step 11 is {:.3e}; the saved run "
                                 "would have had 1.000e-04",
                                 lr)),
            std::string::npos)
      << log;
  const RunRecord record = record_at(config, 20);
  ASSERT_EQ(record.changes.size(), 1U);
  EXPECT_EQ(record.changes[0].step, 10);
  EXPECT_EQ(record.changes[0].change.text(), "schedule.steps: 10 -> 20");
}

TEST(Schedule, AShorterRunFollowsTheScheduleOfItsFirstStart) {
  TemporaryFolder folder;
  const TinyRun whole = run(tiny_config(folder, "whole"));
  Config config = half_a_run(folder, "run");
  config.training.steps = 7;
  const TinyRun shorter = run(config);
  ASSERT_EQ(shorter.steps.size(), 7U);
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(shorter.steps[i].at("lr"), whole.steps[i].at("lr"));
}

TEST(AllowChange, TheRefusalNamesIt) {
  TemporaryFolder folder;
  Config config = half_a_run(folder, "run");
  config.optimizer.lr = 5e-4;
  config.training.global_batch_size = 8;
  sizes(config).rope_theta = 5e5;
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("optimizer.lr: 0.001 -> 0.0005"), std::string::npos) << error;
  EXPECT_NE(error.find("model.rope_theta: 10000.0 -> 500000.0"), std::string::npos) << error;
  EXPECT_NE(error.find("set checkpoint.allow_change: [training.global_batch_size, optimizer.lr]"),
            std::string::npos)
      << error;
}

TEST(AllowChange, IsRecordedAndStaysRecorded) {
  TemporaryFolder folder;
  Config config = half_a_run(folder, "run");
  config.optimizer.lr = 5e-4;
  config.checkpoint.allow_change = {"optimizer.lr"};
  config.training.stop_after = 7;
  run(config);
  EXPECT_NE(log_of(config).find("warning: optimizer.lr: 0.001 -> 0.0005: from step 6 on"),
            std::string::npos);
  EXPECT_NE(log_of(config).find("warning: the learning rate of step 6 is"), std::string::npos);
  config.optimizer.weight_decay = 0.0;
  config.checkpoint.allow_change = {"optimizer.weight_decay"};
  run(config);
  const RunRecord record = record_at(config, 10);
  ASSERT_EQ(record.changes.size(), 2U);
  EXPECT_EQ(record.changes[0].step, 5);
  EXPECT_EQ(record.changes[0].change.text(), "optimizer.lr: 0.001 -> 0.0005");
  EXPECT_EQ(record.changes[1].step, 7);
  EXPECT_EQ(record.changes[1].change.text(), "optimizer.weight_decay: 0.1 -> 0.0");
}

// Tokens, the data position and the rows that name dropout masks are counted, not derived.
TEST(AllowChange, AnotherGlobalBatchKeepsTheCounters) {
  TemporaryFolder folder;
  const auto start = [&](const std::string& name) {
    Config config = tiny_config(folder, name);
    sizes(config).hidden_dropout = 0.2;
    config.training.stop_after = 5;
    run(config);
    config.training.global_batch_size = 8;
    config.checkpoint.allow_change = {"training.global_batch_size"};
    config.training.stop_after.reset();
    return config;
  };
  Config whole = start("whole");
  const TinyRun reference = run(whole);
  ASSERT_EQ(reference.steps.size(), 10U);
  EXPECT_EQ(reference.steps[4].at("tokens"), 5 * 16 * 16);
  EXPECT_EQ(reference.steps[9].at("tokens"), 5 * 16 * 16 + 5 * 8 * 16);
  std::set<int64_t> seen;  // 80 + 20 of 100 samples: each once in the first epoch
  size_t taken = 0;
  for (size_t i = 0; i < 7; ++i)
    for (const int64_t id : reference.steps[i].at("samples"))
      if (++taken <= 100) seen.insert(id);
  EXPECT_EQ(taken, 5U * 16 + 2 * 8);
  EXPECT_EQ(seen.size(), taken);
  const Manifest manifest = read_manifest(step_dir(whole, 10));
  EXPECT_EQ(manifest.tokens, 5 * 16 * 16 + 5 * 8 * 16);
  EXPECT_EQ(progress_of(manifest).rows, 5 * 16 + 5 * 8);

  // Stopped in between, on another mesh: the same masks, so the same numbers.
  Config halves = start("halves");
  halves.training.stop_after = 7;
  run(halves);
  expect_identical(run(halves), reference);
  Config moved = start("moved");
  moved.parallel.dp_shard = 2;
  moved.parallel.tp = 2;
  expect_close(run(moved), reference, 1e-5);
}

TEST(AllowChange, OtherDataGoOnAtTheSameCounter) {
  TemporaryFolder folder;
  Config config = half_a_run(folder, "run");
  write_tokens(folder / "more", 300 * 16 + 1);
  config.data.train = {folder / "more"};
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("set checkpoint.allow_change: [data.train]"), std::string::npos) << error;
  config.checkpoint.allow_change = {"data.train"};
  EXPECT_EQ(run(config).steps.size(), 10U);
  EXPECT_EQ(progress_of(read_manifest(step_dir(config, 10))).position, 160);
  const RunRecord record = record_at(config, 10);
  ASSERT_EQ(record.changes.size(), 1U);
  EXPECT_EQ(record.changes[0].change.key, "data.train");
  EXPECT_TRUE(record.changes[0].change.before.is_array());
  EXPECT_NE(record.changes[0].change.before, record.changes[0].change.after);
}

TEST(AllowChange, EveryKeyOfTheListWorks) {
  TemporaryFolder folder;
  Config config = half_a_run(folder, "run");
  config.run.seed = 7;
  config.data.seq_len = 8;
  sizes(config).attention_dropout = 0.1;
  config.precision.params = ParamsDtype::kFp16;  // its loss scale begins anew
  config.training.clip_grad_norm = 0.0;
  config.training.clip_grad_value = 0.1;
  config.optimizer.type = OptimizerType::kAdam;
  config.optimizer.moments = MomentsDtype::kBf16;
  config.optimizer.groups = {{.params = {"*norm*"}, .lr_scale = 0.5}};
  config.schedule.type = ScheduleType::kLinear;
  config.checkpoint.allow_change = {"run.seed",         "data.seq_len",
                                    "precision.params", "model.attention_dropout",
                                    "optimizer.type",   "training.clip_grad_norm",
                                    "schedule.type",    "training.clip_grad_value",
                                    "optimizer.groups", "optimizer.moments"};
  const TinyRun changed = run(config);
  ASSERT_EQ(changed.steps.size(), 10U);
  EXPECT_EQ(changed.steps[5].at("loss_scale"), 65536.0);
  EXPECT_EQ(record_at(config, 10).changes.size(), 10U);
}

TEST(AllowChange, StatesThatAreNotThereAreNamed) {
  TemporaryFolder folder;
  Config frozen = tiny_config(folder, "run");
  frozen.optimizer.groups = {{.params = {"lm_head.weight"}, .frozen = true}};
  frozen.training.stop_after = 5;
  run(frozen);
  frozen.training.stop_after.reset();
  Config config = frozen;
  config.optimizer.groups.clear();
  config.checkpoint.allow_change = {"optimizer.groups", "optimizer.type", "optimizer.momentum",
                                    "optimizer.betas", "optimizer.eps"};
  std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("no exp_avg of lm_head.weight, which was frozen"), std::string::npos)
      << error;
  config = frozen;
  config.checkpoint.allow_change = {"optimizer.type", "optimizer.momentum"};
  config.optimizer.type = OptimizerType::kSgd;
  config.optimizer.momentum = 0.9;
  error = error_of([&] { run(config); });
  EXPECT_NE(error.find("holds no momentum"), std::string::npos) << error;
}

// The checkpoint as a program wrote it that knew neither rows nor schedule.steps nor a past.
TEST(OlderCheckpoints, GoOn) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  sizes(config).hidden_dropout = 0.2;
  const TinyRun reference = run(config);
  config.run.dir = folder / "older";
  config.training.stop_after = 5;
  run(config);
  Manifest manifest = read_manifest(step_dir(config, 5));
  for (const char* key : {"rows", "last_failed_step", "rollbacks"}) manifest.training.erase(key);
  manifest.training["loss_scale"] = {{"scale", 1.0}, {"good_steps", 0}, {"hysteresis_left", 1}};
  manifest.config["schedule"].erase("steps");
  manifest.config["checkpoint"].erase("allow_change");
  manifest.run = nullptr;
  write_manifest(step_dir(config, 5), manifest);
  const TinyRun resumed = run(config);
  expect_identical(resumed, reference);
  EXPECT_EQ(read_manifest(step_dir(config, 10)).config["schedule"]["steps"], 10);
}

}  // namespace
}  // namespace tessera

// Stopping and going on: bit for bit on the same mesh, to rounding on another one.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/files/folder_lock.h"
#include "support/error_of.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

Config mesh_config(const TemporaryFolder& folder, const std::string& name, int dp, int tp) {
  Config config = tiny_config(folder, name);
  config.parallel.dp_shard = dp;
  config.parallel.tp = tp;
  config.training.micro_batch_size = 4;
  return config;
}

TEST(Resume, TwoHalvesEqualTheWholeBitForBit) {
  for (const auto& [dp, tp] : {std::pair{1, 1}, {2, 2}, {3, 1}}) {
    TemporaryFolder folder;
    Config whole = mesh_config(folder, "whole", dp, tp);
    const TinyRun reference = run(whole);
    Config halves = mesh_config(folder, "halves", dp, tp);
    halves.training.stop_after = 5;
    EXPECT_EQ(run(halves).outcome, TrainOutcome::kStoppedAfterSave);
    const TinyRun resumed = run(halves);  // the same command again goes on
    EXPECT_EQ(resumed.outcome, TrainOutcome::kDone);
    expect_identical(resumed, reference);
    EXPECT_EQ(read_states(halves, 10), read_states(whole, 10));
  }
}

TEST(Resume, OnAnotherMesh) {
  TemporaryFolder folder;
  const TinyRun reference = run(mesh_config(folder, "whole", 2, 2));
  for (const auto& [dp, tp] : {std::pair{4, 1}, {1, 4}, {1, 1}, {3, 1}}) {
    const std::string name = "moved-" + std::to_string(dp) + std::to_string(tp);
    Config config = mesh_config(folder, name, 2, 2);
    config.training.stop_after = 5;
    run(config);
    config.parallel.dp_shard = dp;
    config.parallel.tp = tp;
    expect_close(run(config), reference, 1e-5);
  }
}

TEST(Resume, ALineBeyondTheCheckpointIsCutOff) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.training.stop_after = 5;
  run(config);
  std::ofstream(std::filesystem::path(config.run.dir) / "metrics.jsonl", std::ios::app)
      << "{\"step\": 6, \"loss\": 1.0}\n{\"step\": 7, \"lo";  // what a killed run leaves
  const TinyRun resumed = run(config);
  ASSERT_EQ(resumed.steps.size(), 10U);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(resumed.steps[i].at("step"), i + 1);
}

TEST(Resume, ACompleteRunIsLeftAlone) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  const TinyRun first = run(config);
  const auto step = std::filesystem::path(config.run.dir) / "checkpoints" / step_dir_name(10);
  const auto written = std::filesystem::last_write_time(step / "manifest.json");
  const TinyRun second = run(config);
  EXPECT_EQ(second.outcome, TrainOutcome::kDone);
  expect_identical(second, first);
  EXPECT_EQ(std::filesystem::last_write_time(step / "manifest.json"), written);
  config.training.steps = 12;  // with more steps it goes on
  EXPECT_EQ(run(config).steps.size(), 12U);
}

TEST(Resume, StartsTheNextEpochAtAnEpochEnd) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  write_tokens(folder / "epoch", 64 * 16 + 1);
  config.data.train = {folder / "epoch"};
  config.training.global_batch_size = 4;
  config.training.steps = 32;
  config.training.stop_after = 16;  // 64 samples: one epoch
  run(config);
  const TinyRun resumed = run(config);
  ASSERT_EQ(resumed.steps.size(), 32U);
  std::vector<int> seen(64);
  std::vector<int64_t> first_epoch, second_epoch;
  for (size_t i = 0; i < 32; ++i)
    for (int64_t id : resumed.steps[i].at("samples")) {
      ++seen.at(static_cast<size_t>(id));
      (i < 16 ? first_epoch : second_epoch).push_back(id);
    }
  EXPECT_EQ(seen, std::vector<int>(64, 2));
  EXPECT_NE(first_epoch, second_epoch);
}

TEST(Resume, ExplicitPathMustBeThere) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.checkpoint.resume = "/no/such/step-00000001";
  EXPECT_NE(error_of([&] { run(config); }).find("/no/such/step-00000001"), std::string::npos);
}

TEST(Resume, ARunFolderInPlaceOfAStepFolderNamesTheNewest) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.training.stop_after = 3;
  run(config);
  Config other = mesh_config(folder, "other", 1, 1);
  for (std::string* key : {&other.checkpoint.resume, &other.checkpoint.init_from}) {
    const std::string before = *key;
    *key = config.run.dir;
    const std::string error = error_of([&] { run(other); });
    EXPECT_NE(error.find("the newest is " + config.run.dir + "/checkpoints/step-00000003"),
              std::string::npos)
        << error;
    *key = before;
  }
}

TEST(Resume, AnExplicitPathWithNewerStepsBesideItIsRefused) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.checkpoint.every = 5;
  run(config);
  const auto checkpoints = std::filesystem::path(config.run.dir) / "checkpoints";
  config.checkpoint.resume = checkpoints / step_dir_name(5);
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("would mix"), std::string::npos) << error;
}

TEST(Resume, AnExplicitPathElsewhereBeginsARunThatThenGoesOnByItself) {
  TemporaryFolder folder;
  Config source = mesh_config(folder, "source", 2, 2);
  const TinyRun whole = run(source);
  source = mesh_config(folder, "first", 2, 2);
  source.training.stop_after = 4;
  run(source);
  Config config = mesh_config(folder, "second", 2, 2);
  config.checkpoint.resume =
      std::filesystem::path(source.run.dir) / "checkpoints" / step_dir_name(4);
  config.training.stop_after = 7;
  EXPECT_EQ(run(config).outcome, TrainOutcome::kStoppedAfterSave);
  const TinyRun second = run(config);  // from step 7, not from step 4 again
  EXPECT_EQ(second.outcome, TrainOutcome::kDone);
  ASSERT_EQ(second.steps.size(), 6U);  // steps 5 to 10
  EXPECT_EQ(second.steps.back().at("loss"), whole.steps.back().at("loss"));
}

TEST(Resume, OtherTokensUnderTheSameNameAreRefusedAndMovedFilesAreNot) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.training.stop_after = 5;
  run(config);
  for (const char* suffix : {".bin", ".idx"})
    std::filesystem::copy_file(config.data.train[0] + suffix, (folder / "moved").string() + suffix);
  {
    std::fstream bin(config.data.train[0] + ".bin",
                     std::ios::in | std::ios::out | std::ios::binary);
    bin.seekp(100);
    bin.put(1);
  }
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("does not hold the tokens"), std::string::npos) << error;
  config.data.train = {folder / "moved"};
  EXPECT_EQ(run(config).outcome, TrainOutcome::kDone);
}

TEST(Resume, KeysThatDecideTheMathematicsAreRefused) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.training.stop_after = 5;
  run(config);
  config.optimizer.lr = 2e-3;
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("optimizer.lr"), std::string::npos) << error;
  EXPECT_NE(error.find("0.002"), std::string::npos) << error;
}

TEST(Resume, NoneIsRefusedWhereCheckpointsAre) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.training.stop_after = 5;
  run(config);
  config.checkpoint.resume = "none";
  EXPECT_NE(error_of([&] { run(config); }).find("would mix"), std::string::npos);
}

TEST(Resume, InitFromTakesWeightsAloneAndStartsAtStepOne) {
  TemporaryFolder folder;
  Config source = mesh_config(folder, "source", 2, 2);
  source.training.stop_after = 5;
  run(source);
  const auto weights = read_states(source, 5);
  Config config = mesh_config(folder, "fresh", 1, 1);
  config.checkpoint.init_from =
      std::filesystem::path(source.run.dir) / "checkpoints" / step_dir_name(5);
  config.training.steps = 1;
  config.schedule.warmup_steps = 0;
  config.optimizer.lr = 1e-30;
  config.optimizer.weight_decay = 0.0;
  const TinyRun started = run(config);
  ASSERT_EQ(started.steps.size(), 1U);
  EXPECT_EQ(started.steps[0].at("step"), 1);
  const auto now = read_states(config, 1);
  for (const auto& [name, values] : weights) {
    if (name.ends_with("/param")) {
      EXPECT_EQ(now.at(name), values) << name;
    }
  }
  // Fresh moments: after one step exp_avg is (1 - beta1) times the clipped gradient, so its norm
  // over all tensors is (1 - beta1) * clip_grad_norm; anything restored would add to it.
  double squares = 0.0;
  for (const auto& [name, values] : now)
    if (name.ends_with("/exp_avg"))
      for (float value : values) squares += static_cast<double>(value) * value;
  ASSERT_GT(started.steps[0].at("grad_norm").get<double>(), config.training.clip_grad_norm);
  EXPECT_NEAR(std::sqrt(squares), 0.1 * config.training.clip_grad_norm, 1e-5);
}

TEST(Resume, InitFromRefusesAnotherModel) {
  TemporaryFolder folder;
  Config source = mesh_config(folder, "source", 1, 1);
  source.training.stop_after = 5;
  run(source);
  Config config = mesh_config(folder, "other", 1, 1);
  config.checkpoint.init_from =
      std::filesystem::path(source.run.dir) / "checkpoints" / step_dir_name(5);
  sizes(config).rope_theta = 500000.0;  // shapes cannot tell
  sizes(config).num_attention_heads = 4;
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("model.rope_theta: 10000.0 there, 500000.0 in the configuration"),
            std::string::npos)
      << error;
}

TEST(Training, CountsGlobalTokensAndFollowsTheSchedule) {
  TemporaryFolder folder;
  const TinyRun result = run(mesh_config(folder, "run", 2, 2));
  EXPECT_EQ(result.steps[4].at("tokens"), 5 * 16 * 16);  // not once per tp rank
  EXPECT_DOUBLE_EQ(result.steps[0].at("lr").get<double>(), 0.5e-3);
  EXPECT_DOUBLE_EQ(result.steps[1].at("lr").get<double>(), 1e-3);
}

TEST(Training, ARunFolderInUseIsRefused) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  std::filesystem::create_directories(config.run.dir);
  const FolderLock lock(config.run.dir);
  EXPECT_NE(error_of([&] { run(config); }).find("in use by another run"), std::string::npos);
}

TEST(Training, RanksWithAnotherConfigurationAreNamed) {
  TemporaryFolder folder;
  const Config config = mesh_config(folder, "run", 2, 1);
  const StopSignal stop_signal;
  const std::string error = error_of([&] {
    run_thread_ranks(2, [&](Communicator& world) {
      Config own = config;
      if (world.rank() == 1) own.run.seed = 7;
      train(own, world.split(0, world.rank(), "world"), stop_signal);
    });
  });
  EXPECT_NE(error.find("rank 1 has read another configuration"), std::string::npos) << error;
  EXPECT_NE(error.find("run.seed"), std::string::npos) << error;
}

TEST(Training, ATokenOutsideTheVocabularyIsFoundBeforeTheFirstStep) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  write_tokens(folder / "valid", 64 * 16 + 1);
  {
    std::fstream bin((folder / "valid").string() + ".bin",
                     std::ios::in | std::ios::out | std::ios::binary);
    bin.seekp(1000);
    bin.put(64);
  }
  config.data.valid = {folder / "valid"};
  config.eval.every = 10;
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("token 64 at offset 1000"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(config.run.dir) / "metrics.jsonl"));
}

TEST(Resume, AnExplicitPathUnderAnotherNameBesideNoOther) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.training.stop_after = 5;
  run(config);
  const auto checkpoints = std::filesystem::path(config.run.dir) / "checkpoints";
  std::filesystem::rename(checkpoints / step_dir_name(5), checkpoints / "kept");
  config.checkpoint.resume = checkpoints / "kept";
  EXPECT_EQ(run(config).steps.size(), 10U);
}

TEST(Resume, AStepFolderKeepsItsName) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  config.training.stop_after = 5;
  run(config);
  const auto checkpoints = std::filesystem::path(config.run.dir) / "checkpoints";
  std::filesystem::rename(checkpoints / step_dir_name(5), checkpoints / step_dir_name(6));
  EXPECT_NE(error_of([&] { run(config); }).find("checkpoint of step 5"), std::string::npos);
}

TEST(Training, TooFewSamplesForABatchIsAnError) {
  TemporaryFolder folder;
  write_tokens(folder / "few", 3 * 16 + 1);
  Config config = mesh_config(folder, "run", 1, 1);
  config.data.train = {folder / "few"};
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("3 samples"), std::string::npos) << error;
  EXPECT_NE(error.find("global batch of 16"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera

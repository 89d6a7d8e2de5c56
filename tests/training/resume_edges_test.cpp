// What other trainers got wrong at the edges of saving and resuming, each as a run of the real
// train().
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/rank_file.h"
#include "support/as_nobody.h"
#include "support/error_of.h"
#include "support/verify_all.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

fs::path checkpoints(const Config& config) {
  return fs::path(config.run.dir) / "checkpoints";
}

std::string log_of(const Config& config) {
  return read_small_file(fs::path(config.run.dir) / "logs/train.log", 1 << 20);
}

// Stops after `steps` of ten; the returned configuration goes on to the end.
Config stopped_run(Config config, int64_t steps) {
  config.training.stop_after = steps;
  EXPECT_EQ(run(config).outcome, TrainOutcome::kStoppedAfterSave);
  config.training.stop_after.reset();
  return config;
}

// A shard that is missing: an error that names it, on every rank and before any of them waits.
TEST(ResumeEdges, AMissingFileOfAnExplicitCheckpointIsNamedOnAllRanks) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.parallel.dp_shard = config.parallel.tp = 2;
  config = stopped_run(config, 3);
  config.run.dir = folder / "other";
  config.checkpoint.resume = folder / "run/checkpoints" / step_dir_name(3);
  fs::remove(fs::path(config.checkpoint.resume) / rank_file_name(1));
  std::atomic<int> named{0};
  const StopSignal stop_signal;
  run_thread_ranks(4, [&](Communicator& world) {
    try {
      train(config, world.split(0, world.rank(), "world"), stop_signal);
    } catch (const Error& error) {
      if (std::string(error.what()).find(rank_file_name(1) + " is missing") != std::string::npos)
        ++named;
    }
  });
  EXPECT_EQ(named, 4);
  EXPECT_FALSE(fs::exists(fs::path(config.run.dir) / "metrics.jsonl"));
}

// `latest` is for people: nothing that an editor does to it changes where a run goes on.
TEST(ResumeEdges, TheNewestIsFoundWhateverStandsInLatest) {
  TemporaryFolder folder;
  for (const char* text : {"step-00000004\n\n", "step-00000004\r\n", " step-00000004 ", "", "\xff",
                           "step-00000002\n", "../elsewhere\n"}) {
    SCOPED_TRACE(text);
    fs::remove_all(folder / "run");
    Config config = tiny_config(folder, "run");
    config.checkpoint.every = 2;
    config.training.steps = 6;
    config = stopped_run(config, 4);
    write_file_atomic(checkpoints(config) / "latest", text);
    EXPECT_EQ(run(config).steps.size(), 6U);
    EXPECT_NE(log_of(config).find("at step 4"), std::string::npos);
    EXPECT_EQ(read_small_file(checkpoints(config) / "latest", 100), "step-00000006\n");
  }
}

TEST(ResumeEdges, TheLastStepIsSavedOutsideTheIntervalAlsoAfterAResume) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.checkpoint.every = 4;
  run(stopped_run(config, 8));
  verify_all(checkpoints(config) / step_dir_name(10));
  config.training.steps = 11;
  run(config);
  verify_all(checkpoints(config) / step_dir_name(11));
}

// Not at the first save, hours later.
TEST(ResumeEdges, ARunFolderThatCannotBeWrittenToIsFoundBeforeTheFirstStep) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  fs::permissions(folder.path(), fs::perms::all);
  write_file_atomic(folder / "run", "a file");
  EXPECT_NE(error_of([&] { run(config); }).find("choose another run.dir"), std::string::npos);
  EXPECT_EQ(read_small_file(folder / "run", 100), "a file");

  fs::create_directories(folder / "locked/run");
  fs::permissions(folder / "locked/run", fs::perms::owner_read | fs::perms::owner_exec |
                                             fs::perms::others_read | fs::perms::others_exec);
  config.run.dir = folder / "locked/run";
  for (const int ranks : {1, 2}) {
    config.parallel.dp_shard = ranks;
    const AsNobody nobody;
    const std::string error = error_of([&] { run(config); });
    EXPECT_NE(error.find("locked/run"), std::string::npos) << error;
    EXPECT_NE(error.find("Permission denied"), std::string::npos) << error;
  }
  EXPECT_TRUE(fs::is_empty(folder / "locked/run"));
  fs::permissions(folder / "locked/run", fs::perms::all);
}

TEST(ResumeEdges, AutoWithNothingThereSaysThatItStartsAnew) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.training.steps = 1;
  EXPECT_EQ(run(config).steps.size(), 1U);
  EXPECT_NE(log_of(config).find("no checkpoint in"), std::string::npos);
  EXPECT_NE(log_of(config).find("starting at step 0"), std::string::npos);
}

// The columns step, loss, lr and gradient norm of the lines of steps.
std::vector<std::string> printed_steps(const Config& config) {
  std::istringstream log(log_of(config));
  std::vector<std::string> lines;
  for (std::string line; std::getline(log, line);) {
    std::istringstream words(line);
    std::string step, loss, lr, norm;
    if (words >> step >> loss >> lr >> norm && !step.empty() &&
        step.find_first_not_of("0123456789") == std::string::npos)
      lines.push_back(step + " " + loss + " " + lr + " " + norm);
  }
  return lines;
}

// A window of the log that began before the save: what is printed is an unbroken run's.
TEST(ResumeEdges, TheFirstLineAfterAResumeIsAnUnbrokenRuns) {
  TemporaryFolder folder;
  Config whole = tiny_config(folder, "whole"), halves = tiny_config(folder, "halves");
  whole.training.log_every = halves.training.log_every = 4;
  run(whole);
  run(stopped_run(halves, 6));
  ASSERT_EQ(printed_steps(whole).size(), 2U);
  EXPECT_EQ(printed_steps(halves), printed_steps(whole));
}

// States belong to names: in which order the groups stand, and in which the checkpoint was written,
// means nothing.
TEST(ResumeEdges, GroupsInAnotherOrderKeepTheirRatesAndMoments) {
  TemporaryFolder folder;
  const auto config_of = [&](const std::string& name) {
    Config config = tiny_config(folder, name);
    config.parallel.dp_shard = 2;
    config.optimizer.groups = {{.params = {"*embed*"}, .lr_scale = 0.5},
                               {.params = {"*norm*"}, .lr_scale = 2.0, .weight_decay = 0.01}};
    return config;
  };
  const Config whole = config_of("whole");
  const TinyRun reference = run(whole);
  Config swapped = stopped_run(config_of("swapped"), 5);
  std::swap(swapped.optimizer.groups[0], swapped.optimizer.groups[1]);
  swapped.checkpoint.allow_change = {"optimizer.groups"};
  expect_identical(run(swapped), reference);
  EXPECT_EQ(read_states(swapped, 10), read_states(whole, 10));
}

// A checkpoint of another depth or vocabulary, resumed and as a start: what differs is named with
// both values before anything is trained, and nothing is left out or drawn at random.
TEST(ResumeEdges, AModelOfAnotherSizeIsNamedWithBothSizes) {
  TemporaryFolder folder;
  const Config saved = stopped_run(tiny_config(folder, "run"), 2);
  for (const bool weights_only : {false, true}) {
    const auto error = [&](int64_t layers, int64_t vocab) {
      Config config = tiny_config(folder, "other");
      sizes(config).num_hidden_layers = layers;
      sizes(config).vocab_size = vocab;
      config.parallel.dp_shard = 2;
      (weights_only ? config.checkpoint.init_from : config.checkpoint.resume) =
          checkpoints(saved) / step_dir_name(2);
      const std::string text = error_of([&] { run(config); });
      EXPECT_FALSE(fs::exists(folder / "other/metrics.jsonl"));
      return text;
    };
    for (const int64_t layers : {1, 3}) {
      const std::string text = error(layers, 64);
      EXPECT_NE(
          text.find(weights_only ? fmt::format("model.num_hidden_layers: 2 there, {} in", layers)
                                 : fmt::format("model.num_hidden_layers: 2 -> {}", layers)),
          std::string::npos)
          << text;
    }
    const std::string text = error(2, 65);
    EXPECT_NE(text.find(weights_only ? "model.vocab_size: 64 there, 65 in"
                                     : "model.vocab_size: 64 -> 65"),
              std::string::npos)
        << text;
  }
}

// More ranks than a tensor has rows (8 norms of 64 elements beside matrices): a rank may own
// nothing of it, before and after.
TEST(ResumeEdges, ARankMayOwnNothingOfATensor) {
  TemporaryFolder folder;
  const auto config_of = [&](const std::string& name, int ranks) {
    Config config = tiny_config(folder, name);
    config.training.micro_batch_size = 2;
    config.parallel.dp_shard = ranks;
    return config;
  };
  const TinyRun reference = run(config_of("one", 1));
  Config config = stopped_run(config_of("many", 4), 5);
  config.parallel.dp_shard = 8;
  expect_close(run(config), reference, 1e-5);
}

}  // namespace
}  // namespace tessera

// A wish to stop at every place of a run, and the order of save, validation and retirement that
// makes it (and a kill) cost nothing.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "base/files/files.h"
#include "base/process/stop_requested.h"
#include "support/error_of.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Handlers for good, as in the program; every test begins without a wish to stop.
class Stop : public ::testing::Test {
 protected:
  void SetUp() override {
    catch_stop_signals();
    forget_stop_signals();
  }
  void TearDown() override {
    forget_stop_signals();
    unsetenv("TESSERA_LAUNCH_FOLDER");
  }
};

// Ten steps; a validation of six batches after the fifth and the tenth.
Config eval_config(const TemporaryFolder& folder, const std::string& name, int dp = 1, int tp = 1) {
  Config config = tiny_config(folder, name);
  config.parallel.dp_shard = dp;
  config.parallel.tp = tp;
  config.training.global_batch_size = 4;
  config.training.micro_batch_size = 1;
  if (!fs::exists(folder / "valid.idx")) write_tokens(folder / "valid", 21 * 16 + 1);
  config.data.valid = {folder / "valid"};
  config.eval.every = 5;
  config.checkpoint.every = 5;
  return config;
}

TrainHooks raise_in_validation(int64_t step, int signal = SIGTERM) {
  TrainHooks hooks;
  hooks.validation_batch = [=](int64_t now, int64_t done) {
    if (now == step && done >= 8) std::raise(signal);
  };
  return hooks;
}

fs::path note_of(const Config& config) {
  return fs::path(config.run.dir) / "owed-validation.json";
}

void write_note(const Config& config, int64_t step) {
  write_file_atomic(note_of(config), "{\"step\": " + std::to_string(step) + "}");
}

bool is_saved(const Config& config, int64_t step) {
  return fs::exists(fs::path(config.run.dir) / "checkpoints" / step_dir_name(step) /
                    "manifest.json");
}

void expect_same_lines(const TinyRun& run, const TinyRun& reference) {
  expect_identical(run, reference);
  EXPECT_EQ(run.evals, reference.evals);
}

TEST_F(Stop, InAValidationLeavesItToTheNextStart) {
  TemporaryFolder folder;
  for (const auto& [dp, tp] : {std::pair{1, 1}, {2, 2}}) {
    const std::string mesh = std::to_string(dp) + std::to_string(tp);
    const TinyRun reference = run(eval_config(folder, "whole" + mesh, dp, tp));
    // A save is due at the same step, or not.
    for (const int64_t save_every : {5, 0}) {
      Config config = eval_config(folder, mesh + std::to_string(save_every), dp, tp);
      config.checkpoint.every = save_every;
      const TinyRun stopped = run(config, raise_in_validation(5));
      EXPECT_EQ(stopped.outcome, TrainOutcome::kStoppedAfterSave);
      EXPECT_EQ(stopped.steps.size(), 5U);
      EXPECT_TRUE(stopped.evals.empty());
      EXPECT_TRUE(is_saved(config, 5));
      EXPECT_TRUE(fs::exists(note_of(config)));
      forget_stop_signals();
      const TinyRun resumed = run(config);
      EXPECT_EQ(resumed.outcome, TrainOutcome::kDone);
      expect_same_lines(resumed, reference);
      EXPECT_FALSE(fs::exists(note_of(config)));
    }
  }
}

TEST_F(Stop, InTheLastValidationIsADoneRunThatMakesItUp) {
  TemporaryFolder folder;
  const TinyRun reference = run(eval_config(folder, "whole"));
  const Config config = eval_config(folder, "run");
  const TinyRun stopped = run(config, raise_in_validation(10));
  EXPECT_EQ(stopped.outcome, TrainOutcome::kDone);
  EXPECT_TRUE(is_saved(config, 10));
  EXPECT_EQ(stopped.evals.size(), 1U);
  forget_stop_signals();
  // Stopped again while it is made up.
  EXPECT_EQ(run(config, raise_in_validation(10)).outcome, TrainOutcome::kDone);
  forget_stop_signals();
  for (int start = 0; start < 2; ++start) {
    const TinyRun finished = run(config);
    EXPECT_EQ(finished.outcome, TrainOutcome::kDone);
    expect_same_lines(finished, reference);
  }
}

TEST_F(Stop, BeforeTheFirstStepTrainsAndSavesNothing) {
  TemporaryFolder folder;
  const Config config = eval_config(folder, "run", 2, 1);
  std::raise(SIGHUP);
  EXPECT_EQ(run(config).outcome, TrainOutcome::kStoppedAfterSave);
  EXPECT_FALSE(fs::exists(fs::path(config.run.dir) / "metrics.jsonl"));
  forget_stop_signals();
  EXPECT_EQ(run(config).outcome, TrainOutcome::kDone);
}

TEST_F(Stop, InAStepSavesIt) {
  TemporaryFolder folder;
  const TinyRun reference = run(eval_config(folder, "whole"));
  for (const int64_t at : {3, 5, 10}) {
    const Config config = eval_config(folder, "at-" + std::to_string(at));
    TrainHooks hooks;
    hooks.gradients_ready = [at](int64_t step, Mesh&, const std::vector<FlatBucket*>&) {
      if (step == at) std::raise(SIGUSR2);
    };
    const TinyRun stopped = run(config, hooks);
    EXPECT_EQ(stopped.outcome, at == 10 ? TrainOutcome::kDone : TrainOutcome::kStoppedAfterSave);
    EXPECT_EQ(stopped.steps.size(), static_cast<size_t>(at));
    EXPECT_TRUE(is_saved(config, at));
    EXPECT_EQ(fs::exists(note_of(config)), at != 3);
    forget_stop_signals();
    expect_same_lines(run(config), reference);
  }
}

// What a kill in the validation leaves; the exception takes the place of the kill.
// The step that failed is taken back and recorded, so there is nothing to train before a save.
TEST_F(Stop, InAStepThatIsRolledBackStopsBeforeTheNext) {
  TemporaryFolder folder;
  const auto config_of = [&](const std::string& name) {
    Config config = tiny_config(folder, name);
    config.training.on_nonfinite = OnNonfinite::kRollback;
    config.checkpoint.every = 4;
    return config;
  };
  const auto spoiled = [](bool stop) {
    TrainHooks hooks;
    hooks.gradients_ready = [stop, done = std::make_shared<bool>(false)](
                                int64_t step, Mesh&, const std::vector<FlatBucket*>& buckets) {
      if (step != 6 || std::exchange(*done, true)) return;
      buckets[0]->grad().fill_(std::numeric_limits<double>::quiet_NaN());
      if (stop) std::raise(SIGTERM);
    };
    return hooks;
  };
  const TinyRun whole = run(config_of("whole"), spoiled(false));
  const Config config = config_of("stopped");
  const TinyRun stopped = run(config, spoiled(true));
  EXPECT_EQ(stopped.outcome, TrainOutcome::kStoppedAfterSave);
  EXPECT_EQ(stopped.events, whole.events);
  EXPECT_TRUE(is_saved(config, 4));
  EXPECT_FALSE(is_saved(config, 5));
  forget_stop_signals();
  expect_same_lines(run(config), whole);
}

TEST_F(Stop, AKillInAValidationLosesNothing) {
  TemporaryFolder folder;
  const TinyRun reference = run(eval_config(folder, "whole"));
  const Config config = eval_config(folder, "run");
  TrainHooks hooks;
  hooks.validation_batch = [](int64_t, int64_t done) {
    if (done == 8) fail_user("test", "killed");
  };
  EXPECT_NE(error_of([&] { run(config, hooks); }).find("killed"), std::string::npos);
  EXPECT_TRUE(is_saved(config, 5));
  expect_same_lines(run(config), reference);
}

TEST_F(Stop, OldCheckpointsStayUntilTheValidationIsOver) {
  TemporaryFolder folder;
  Config config = eval_config(folder, "run");
  config.checkpoint.keep = 1;
  bool seen = false;
  TrainHooks hooks;
  hooks.validation_batch = [&](int64_t step, int64_t) {
    if (step != 10) return;
    seen = true;
    EXPECT_TRUE(is_saved(config, 5) && is_saved(config, 10));
  };
  run(config, hooks);
  EXPECT_TRUE(seen);
  EXPECT_FALSE(is_saved(config, 5));
  EXPECT_TRUE(is_saved(config, 10));
}

// What kills between the note, the commit, the line and the note's removal leave.
TEST_F(Stop, ANoteThatIsWrongIsFoundOut) {
  TemporaryFolder folder;
  const TinyRun reference = run(eval_config(folder, "whole"));
  Config config = eval_config(folder, "run");
  config.training.stop_after = 5;
  run(config);
  write_note(config, 7);  // the save of step 7 was killed
  config.training.stop_after.reset();
  expect_same_lines(run(config), reference);
  EXPECT_FALSE(fs::exists(note_of(config)));
  write_note(config, 10);  // its line is there
  expect_same_lines(run(config), reference);
  EXPECT_FALSE(fs::exists(note_of(config)));
  // Its line is torn.
  const fs::path metrics = fs::path(config.run.dir) / "metrics.jsonl";
  fs::resize_file(metrics, fs::file_size(metrics) - 20);
  write_note(config, 10);
  expect_same_lines(run(config), reference);
  write_file_atomic(note_of(config), "step 10");
  EXPECT_NE(error_of([&] { run(config); }).find("owed-validation.json"), std::string::npos);
}

TEST_F(Stop, AValidationThatCannotBeMadeUpAnyMoreIsLeftOut) {
  TemporaryFolder folder;
  Config config = eval_config(folder, "run");
  run(config, raise_in_validation(10));
  forget_stop_signals();
  config.eval.every = 0;
  EXPECT_EQ(run(config).outcome, TrainOutcome::kDone);
  EXPECT_FALSE(fs::exists(note_of(config)));
}

TEST_F(Stop, EverySignalThatAsksForItIsHeard) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU}) {
    forget_stop_signals();
    EXPECT_FALSE(StopSignal().requested());
    std::raise(signal);
    EXPECT_TRUE(StopSignal().requested()) << signal;
  }
}

TEST_F(Stop, AnIgnoredSignalStaysIgnoredAndABlockedOneArrives) {
  std::signal(SIGHUP, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  std::raise(SIGHUP);
  catch_stop_signals();
  std::raise(SIGHUP);
  EXPECT_FALSE(StopSignal().requested());
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  std::raise(SIGUSR1);
  EXPECT_FALSE(StopSignal().requested());
  catch_stop_signals();
  EXPECT_TRUE(StopSignal().requested());
  std::signal(SIGHUP, SIG_DFL);
}

using StopDeathTest = Stop;

TEST_F(StopDeathTest, TheSecondCtrlCEndsAtOnceButNotTheSamePressTwiceNorInASave) {
  const auto second_press = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(550));
    std::raise(SIGINT);
  };
  std::raise(SIGINT);
  std::raise(SIGINT);
  EXPECT_EXIT(second_press(), ::testing::KilledBySignal(SIGINT), "");
  {
    const StopSignal::Uninterrupted save(StopSignal(), true);
    second_press();
  }
  StopSignal().ignore_from_now(true);
  second_press();
}

TEST_F(StopDeathTest, TheLaunchersFilesAreAsSignals) {
  TemporaryFolder folder;
  setenv("TESSERA_LAUNCH_FOLDER", folder.path().c_str(), 1);
  const StopSignal signal;
  EXPECT_FALSE(signal.requested());
  signal.check();
  std::ofstream(folder / "stop").close();
  EXPECT_TRUE(signal.requested());
  EXPECT_THROW(signal.check(), StopRequested);
  {
    const StopSignal::Uninterrupted save(signal, true), of_another_rank(signal, false);
    EXPECT_TRUE(fs::exists(folder / "keep"));
  }
  EXPECT_FALSE(fs::exists(folder / "keep"));
  std::ofstream(folder / "now").close();
  EXPECT_EXIT(StopSignal::Uninterrupted(signal, true), ::testing::KilledBySignal(SIGINT), "");
  fs::remove(folder / "now");
  {
    const StopSignal::Uninterrupted save(signal, true);
    signal.ignore_from_now(true);
  }
  EXPECT_TRUE(fs::exists(folder / "keep"));
}

}  // namespace
}  // namespace tessera

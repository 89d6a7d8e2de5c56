// Steps whose loss or gradient is not finite: stop, skip, roll back, and the loss scale's back-off.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "base/error.h"
#include "training/loop/progress.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Config test_config(const TemporaryFolder& folder, const std::string& name, int dp, int tp) {
  Config config = tiny_config(folder, name);
  config.parallel.dp_shard = dp;
  config.parallel.tp = tp;
  config.checkpoint.every = 1;
  return config;
}

// Sets one element of the gradient of `parameter` on rank `rank` at the given steps.
TrainHooks spoil(std::set<int64_t> steps, double value, int rank = 1,
                 const std::string& parameter = "lm_head.weight") {
  return {[=](int64_t step, Mesh& mesh, const std::vector<FlatBucket*>& buckets) {
    if (!steps.contains(step) || mesh.world().rank() != rank) return;
    for (FlatBucket* bucket : buckets)
      for (const Segment& segment : bucket->segments())
        if (segment.parameter->spec.name == parameter)
          bucket->grad()[segment.shard_offset].fill_(value);
  }};
}

// The gradient of every parameter that the rank holds a part of.
TrainHooks spoil_all(std::set<int64_t> steps, double value, int rank) {
  return {[=](int64_t step, Mesh& mesh, const std::vector<FlatBucket*>& buckets) {
    if (!steps.contains(step) || mesh.world().rank() != rank) return;
    for (FlatBucket* bucket : buckets) bucket->grad().fill_(value);
  }};
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string log_of(const Config& config) {
  std::ifstream in(std::filesystem::path(config.run.dir) / "logs/train.log");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Progress progress_at(const Config& config, int64_t step) {
  return progress_of(
      read_manifest(std::filesystem::path(config.run.dir) / "checkpoints" / step_dir_name(step)));
}

TEST(Nonfinite, StopsByDefaultAndNamesStepParameterAndSamples) {
  TemporaryFolder folder;
  const Config config = test_config(folder, "run", 2, 1);
  const std::string error = error_of([&] { run(config, spoil_all({3}, kNan, 1)); });
  EXPECT_NE(error.find("step 3: loss"), std::string::npos) << error;
  EXPECT_NE(error.find("gradient norm nan"), std::string::npos) << error;
  // Rank 1 has the second half of each bucket; the embedding comes first in the table.
  EXPECT_NE(error.find("first bad gradient: model.embed_tokens.weight"), std::string::npos)
      << error;
  EXPECT_NE(error.find("samples ["), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(config.run.dir) / "checkpoints" /
                                       step_dir_name(3)));
}

TEST(Nonfinite, ASkippedStepLeavesEveryStateAsItWas) {
  for (const auto& [dp, tp] : {std::pair{2, 1}, {1, 2}}) {
    TemporaryFolder folder;
    Config config = test_config(folder, "run", dp, tp);
    config.training.on_nonfinite = OnNonfinite::kSkip;
    config.training.steps = 5;
    const int rank = dp * tp - 1;
    const TinyRun result = run(config, spoil_all({3}, kNan, rank));
    ASSERT_EQ(result.steps.size(), 5U);
    EXPECT_EQ(read_states(config, 3), read_states(config, 2));
    EXPECT_NE(read_states(config, 4), read_states(config, 3));
    EXPECT_EQ(result.steps[2].at("skipped"), true);
    EXPECT_EQ(result.steps[2].at("grad_norm"), "nan");
    EXPECT_FALSE(result.steps[3].contains("skipped"));
    EXPECT_EQ(progress_at(config, 3).updates, 2);
    EXPECT_EQ(progress_at(config, 3).failures_in_a_row, 1);
    EXPECT_EQ(progress_at(config, 5).updates, 4);
    EXPECT_EQ(progress_at(config, 5).failures_in_a_row, 0);
    EXPECT_NE(log_of(config).find("step 3: loss"), std::string::npos);
  }
}

// The documented rule: the step counts, so the learning rate and the data go on.
TEST(Nonfinite, LearningRateAndSamplesFollowTheStep) {
  TemporaryFolder folder;
  const TinyRun plain = run(test_config(folder, "plain", 2, 1));
  Config config = test_config(folder, "skips", 2, 1);
  config.training.on_nonfinite = OnNonfinite::kSkip;
  const TinyRun skips = run(config, spoil({2, 5, 6}, kNan));
  ASSERT_EQ(skips.steps.size(), 10U);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(skips.steps[i].at("lr"), plain.steps[i].at("lr"));
    EXPECT_EQ(skips.steps[i].at("samples"), plain.steps[i].at("samples"));
    EXPECT_EQ(skips.steps[i].contains("skipped"), i == 1 || i == 4 || i == 5);
  }
  EXPECT_EQ(progress_at(config, 10).updates, 7);
}

TEST(Nonfinite, TooManySkipsInARowAreAnError) {
  TemporaryFolder folder;
  Config config = test_config(folder, "run", 2, 1);
  config.training.on_nonfinite = OnNonfinite::kSkip;
  config.training.max_skips = 2;
  run(config, spoil({1, 2, 4, 5, 7, 8}, kNan));  // two in a row at most
  config.run.dir = folder / "more";
  const std::string error = error_of([&] { run(config, spoil({4, 5, 6}, kNan)); });
  EXPECT_NE(error.find("step 6: loss"), std::string::npos) << error;
  EXPECT_NE(error.find("number 3 in a row, and training.max_skips is 2"), std::string::npos)
      << error;
  EXPECT_NE(error.find("first bad gradient: lm_head.weight"), std::string::npos) << error;
}

TEST(Nonfinite, SkipsInARowAreCountedAcrossAResume) {
  TemporaryFolder folder;
  Config config = test_config(folder, "run", 1, 1);
  config.training.on_nonfinite = OnNonfinite::kSkip;
  config.training.max_skips = 2;
  config.training.stop_after = 5;
  run(config, spoil({4, 5}, kNan, 0));
  EXPECT_NE(error_of([&] { run(config, spoil({6}, kNan, 0)); }).find("number 3 in a row"),
            std::string::npos);
}

TEST(Nonfinite, RollsBackAndGoesOnWithoutThoseSamples) {
  std::vector<TinyRun> runs;
  TemporaryFolder folder;
  for (const auto& [dp, tp] : {std::pair{2, 1}, {1, 1}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("dp {} tp {}", dp, tp));
    Config config = test_config(folder, fmt::format("run-{}{}", dp, tp), dp, tp);
    config.training.on_nonfinite = OnNonfinite::kRollback;
    config.checkpoint.every = 4;
    // The samples of step 6 spoil it; after the rollback its place has others.
    auto once = std::make_shared<std::vector<bool>>(static_cast<size_t>(dp * tp), false);
    const TrainHooks inner = spoil({6}, kNan, dp * tp - 1);
    const TrainHooks hooks{[=](int64_t step, Mesh& mesh, const auto& buckets) {
      const auto rank = static_cast<size_t>(mesh.world().rank());
      if (step != 6 || (*once)[rank]) return;
      (*once)[rank] = true;
      inner.gradients_ready(step, mesh, buckets);
    }};
    const TinyRun result = run(config, hooks);
    ASSERT_EQ(result.steps.size(), 10U);
    ASSERT_EQ(result.events.size(), 1U);
    const auto& event = result.events[0];
    EXPECT_EQ(event.at("event"), "rollback");
    EXPECT_EQ(event.at("failed_step"), 6);
    EXPECT_EQ(event.at("back_to"), 4);
    EXPECT_EQ(event.at("skipped_samples"), (nlohmann::json{80, 96}));
    EXPECT_EQ(event.at("parameter"), "lm_head.weight");
    EXPECT_EQ(progress_at(config, 8).skipped, (std::vector<SampleRange>{{80, 96}}));
    EXPECT_EQ(progress_at(config, 10).position, 176);
    EXPECT_EQ(progress_at(config, 10).updates, 10);
    runs.push_back(result);
  }
  // Step 5 again as before, and from step 6 on the samples of the step after.
  const TinyRun plain = run(test_config(folder, "plain", 2, 1));
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(runs[0].steps[i].at("step"), i + 1);
    if (i < 5) {
      EXPECT_EQ(runs[0].steps[i].at("loss"), plain.steps[i].at("loss"));
    } else if (i < 9) {
      EXPECT_EQ(runs[0].steps[i].at("samples"), plain.steps[i + 1].at("samples"));
    }
  }
  for (const TinyRun& other : runs) expect_close(other, runs[0], 1e-5);
}

TEST(Nonfinite, TheOrderAfterARollbackSurvivesAResume) {
  TemporaryFolder folder;
  const auto config_of = [&](const std::string& name) {
    Config config = test_config(folder, name, 1, 1);
    config.training.on_nonfinite = OnNonfinite::kRollback;
    config.checkpoint.every = 3;
    return config;
  };
  const auto hooks = [] {
    auto done = std::make_shared<bool>(false);
    const TrainHooks inner = spoil({5}, kNan, 0);
    return TrainHooks{[=](int64_t step, Mesh& mesh, const auto& buckets) {
      if (step == 5 && !std::exchange(*done, true)) inner.gradients_ready(step, mesh, buckets);
    }};
  };
  const TinyRun whole = run(config_of("whole"), hooks());
  Config halves = config_of("halves");
  halves.training.stop_after = 7;
  run(halves, hooks());
  const TinyRun resumed = run(halves);
  expect_identical(resumed, whole);
  ASSERT_EQ(resumed.events.size(), 1U);
  EXPECT_EQ(read_states(halves, 10), read_states(config_of("whole"), 10));
}

TEST(Nonfinite, ARollbackNeedsACheckpointAndEnds) {
  TemporaryFolder folder;
  Config config = test_config(folder, "none", 1, 1);
  config.training.on_nonfinite = OnNonfinite::kRollback;
  config.checkpoint.every = 0;
  EXPECT_NE(error_of([&] { run(config, spoil({3}, kNan, 0)); }).find("no checkpoint yet"),
            std::string::npos);
  config = test_config(folder, "always", 1, 1);
  config.training.on_nonfinite = OnNonfinite::kRollback;
  config.training.max_skips = 3;
  EXPECT_NE(error_of([&] {
              run(config, spoil({3}, kNan, 0));
            }).find("number 4 in a row, and training.max_skips is 3"),
            std::string::npos);
}

// fp16's scale in an fp32 run: powers of two, so nothing else changes.
TEST(LossScale, IsInvisibleButForTheLog) {
  TemporaryFolder folder;
  const TinyRun plain = run(test_config(folder, "plain", 2, 1));
  Config config = test_config(folder, "scaled", 2, 1);
  config.precision.loss_scale.mode = LossScaleMode::kDynamic;
  const TinyRun scaled = run(config);
  expect_identical(scaled, plain);
  EXPECT_EQ(scaled.steps[0].at("loss_scale"), 65536.0);
  EXPECT_FALSE(plain.steps[0].contains("loss_scale"));
}

TEST(LossScale, IsTakenOutOfWhatFp16ReportsAndNotThereInBf16) {
  TemporaryFolder folder;
  const TinyRun fp32 = run(test_config(folder, "fp32", 2, 1));
  Config config = test_config(folder, "fp16", 2, 1);
  config.precision.params = ParamsDtype::kFp16;
  const TinyRun fp16 = run(config);
  config = test_config(folder, "bf16", 2, 1);
  config.precision.params = ParamsDtype::kBf16;
  const TinyRun bf16 = run(config);
  EXPECT_EQ(fp16.steps[0].at("loss_scale"), 65536.0);
  EXPECT_FALSE(bf16.steps[0].contains("loss_scale"));
  for (const TinyRun* halves : {&fp16, &bf16}) {
    ASSERT_EQ(halves->steps.size(), 10U);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_FALSE(halves->steps[i].contains("skipped"));
      for (const char* key : {"loss", "grad_norm"}) {
        const double exact = fp32.steps[i].at(key);
        EXPECT_NEAR(halves->steps[i].at(key).get<double>(), exact, 0.02 * exact) << key;
      }
    }
  }
}

TEST(LossScale, AllRanksSkipAndHalveAtAnOverflowOfOne) {
  TemporaryFolder folder;
  Config config = test_config(folder, "run", 2, 1);
  config.precision.loss_scale.mode = LossScaleMode::kDynamic;
  config.precision.loss_scale.growth_interval = 3;
  config.training.steps = 6;
  // on_nonfinite: stop does not mind: the scale explains it.
  const TinyRun result = run(config, spoil({2}, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(read_states(config, 2), read_states(config, 1));
  EXPECT_EQ(progress_at(config, 2).updates, 1);
  EXPECT_EQ(progress_at(config, 2).failures_in_a_row, 0);
  EXPECT_EQ(progress_at(config, 2).loss_scale, (LossScaleState{32768.0, 0, 0}));
  const std::vector<double> scales = {65536, 65536, 32768, 32768, 32768, 65536};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(result.steps[i].at("loss_scale"), scales[i]) << i;
  EXPECT_NE(log_of(config).find("step 2: a gradient overflowed at loss scale 65536"),
            std::string::npos);
  EXPECT_NE(log_of(config).find("step 5: loss scale 65536"), std::string::npos);
}

TEST(LossScale, IsRestoredOnResume) {
  TemporaryFolder folder;
  Config whole = test_config(folder, "whole", 1, 1);
  whole.precision.loss_scale.mode = LossScaleMode::kDynamic;
  whole.precision.loss_scale.growth_interval = 4;
  const TinyRun reference =
      run(whole, spoil({2}, std::numeric_limits<double>::infinity(), /*rank=*/0));
  Config halves = whole;
  halves.run.dir = folder / "halves";
  halves.training.stop_after = 4;
  run(halves, spoil({2}, std::numeric_limits<double>::infinity(), /*rank=*/0));
  const TinyRun resumed = run(halves);
  expect_identical(resumed, reference);
  for (size_t i = 0; i < 10; ++i)
    EXPECT_EQ(resumed.steps[i].at("loss_scale"), reference.steps[i].at("loss_scale"));
}

TEST(LossScale, AtItsMinimumAnOverflowIsAFailure) {
  TemporaryFolder folder;
  Config config = test_config(folder, "run", 2, 1);
  config.precision.loss_scale.mode = LossScaleMode::kDynamic;
  config.precision.loss_scale.initial = 2.0;
  config.training.on_nonfinite = OnNonfinite::kSkip;
  config.training.max_skips = 1;
  const std::string error = error_of([&] {
    run(config, spoil({2, 3, 4}, std::numeric_limits<double>::infinity()));
  });
  EXPECT_NE(error.find("step 4: loss"), std::string::npos) << error;
  EXPECT_NE(error.find("number 2 in a row"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera

// Evaluation beside training: it changes nothing, drops nothing, and its mean is over each held-out
// sample once on every mesh.
#include <gtest/gtest.h>

#include "base/error.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

constexpr std::pair<int, int> kMeshes[] = {{1, 1}, {4, 1}, {1, 2}, {2, 2}, {3, 1}};  // dp, tp

Config mesh_config(const TemporaryFolder& folder, const std::string& name, int dp, int tp) {
  Config config = tiny_config(folder, name + std::to_string(dp) + std::to_string(tp));
  config.parallel.dp_shard = dp;
  config.parallel.tp = tp;
  return config;
}

void set_dropout(Config& config, double rate) {
  sizes(config).attention_dropout = sizes(config).hidden_dropout = rate;
  sizes(config).embedding_dropout = rate;
}

// The weights stay as they are.
void freeze(Config& config) {
  config.optimizer.lr = 1e-30;
  config.optimizer.weight_decay = 0.0;
}

// `count` samples to validate on.
void hold_out(Config& config, const TemporaryFolder& folder, int64_t count) {
  const std::string prefix = folder / ("valid-" + std::to_string(count));
  if (!std::filesystem::exists(prefix + ".idx")) write_tokens(prefix, count * 16 + 1);
  config.data.valid = {prefix};
}

// Known fault E01: evaluation drew from the generator, or left the model in its mode.
TEST(Evaluation, ChangesNothing) {
  for (const auto& [dp, tp] : {std::pair{1, 1}, {2, 2}}) {
    TemporaryFolder folder;
    Config config = mesh_config(folder, "without", dp, tp);
    set_dropout(config, 0.1);
    config.training.steps = 20;
    const TinyRun without = run(config);
    const auto states = read_states(config, 20);
    hold_out(config, folder, 21);
    for (const int64_t every : {1, 5}) {
      config.run.dir = folder / ("every-" + std::to_string(every));
      config.eval.every = every;
      const TinyRun with = run(config);
      EXPECT_EQ(with.evals.size(), static_cast<size_t>(20 / every));
      expect_identical(with, without);
      EXPECT_EQ(read_states(config, 20), states);
    }
  }
}

// Known fault E02: dropout in evaluation.
TEST(Evaluation, DropsNothing) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "dropping", 1, 1);
  freeze(config);
  set_dropout(config, 0.1);
  hold_out(config, folder, 21);
  config.eval.every = 1;
  config.training.steps = 2;
  const TinyRun dropped = run(config);
  EXPECT_EQ(dropped.evals[0].at("eval_loss"), dropped.evals[1].at("eval_loss"));
  config.run.dir = folder / "plain";
  set_dropout(config, 0.0);
  const TinyRun plain = run(config);
  EXPECT_EQ(dropped.evals[0].at("eval_loss"), plain.evals[0].at("eval_loss"));
  EXPECT_NE(dropped.steps[0].at("loss"), plain.steps[0].at("loss"));
}

// Known fault E04: averaged once too often. 21 samples: the last batch is not whole.
TEST(Evaluation, IsTheSameOnEveryMesh) {
  TemporaryFolder folder;
  std::vector<double> losses;
  for (const auto& [dp, tp] : kMeshes) {
    Config config = mesh_config(folder, "run", dp, tp);
    hold_out(config, folder, 21);
    config.eval.every = 5;
    config.eval.batches = 8;
    const TinyRun result = run(config);
    ASSERT_EQ(result.evals.size(), 2U);
    EXPECT_EQ(result.evals[0].at("step"), 5);
    EXPECT_EQ(result.evals[0].at("eval_tokens"), 21 * 16);
    losses.push_back(result.evals[1].at("eval_loss"));
    EXPECT_NEAR(losses.back(), losses.front(), 1e-6 * losses.front()) << dp << "x" << tp;
  }
}

// Known fault E05: 3 samples are less than a batch of 4, and than 4 ranks: still the mean of 3.
TEST(Evaluation, TakesABatchThatIsNotWhole) {
  TemporaryFolder folder;
  const auto evaluate = [&](int64_t batch, int dp, int tp) {
    Config config = mesh_config(folder, "batch" + std::to_string(batch), dp, tp);
    freeze(config);
    hold_out(config, folder, 3);
    config.eval.every = 1;
    config.training.steps = 1;
    config.training.global_batch_size = batch;
    config.training.micro_batch_size = 1;
    const TinyRun result = run(config);
    EXPECT_EQ(result.evals[0].at("eval_samples"), 3);
    EXPECT_EQ(result.evals[0].at("eval_tokens"), 3 * 16);
    return result.evals[0].at("eval_loss").get<double>();
  };
  const double one_by_one = evaluate(1, 1, 1);
  for (const auto& [dp, tp] : kMeshes)
    EXPECT_NEAR(evaluate(4, dp, tp), one_by_one, 1e-6 * one_by_one) << dp << "x" << tp;
}

TEST(Evaluation, OfNoSampleIsAnErrorBeforeTheFirstStep) {
  TemporaryFolder folder;
  Config config = mesh_config(folder, "run", 1, 1);
  write_tokens(folder / "none", 16);  // one token short of a sample
  config.data.valid = {folder / "none"};
  config.eval.every = 5;
  try {
    run(config);
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("16 tokens in " + config.data.valid[0] +
                        " are too few: one sample of seq_len 16 takes 17"),
              std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(config.run.dir) / "metrics.jsonl"));
}

}  // namespace
}  // namespace tessera

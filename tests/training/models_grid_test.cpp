// The smallest form of every language model on a diagonal of the grid (grid_test.cpp): the real
// train() on meshes of thread ranks gives one rank's numbers, with sequence parallelism and a
// vocabulary and kv heads that tp does not divide. Other kinds of models have tests of their own.
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "base/text/json_text.h"
#include "support/folders.h"
#include "support/golden_models.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

constexpr double kMetrics = 1e-5, kWeights = 2e-5;  // as grid_test's in fp32

// The models of golden/make_models.py, with room for this test's tokens. GPT-2's has dropout.
AnyModel golden_model(const std::string& name, double dropout = 0.0) {
  const auto file = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/models" / name;
  nlohmann::json json =
      parse_json(read_small_file(file / "config.json", 1 << 20), (file / "config.json").string());
  json["vocab_size"] = 67;
  if (dropout > 0) json["attention_dropout"] = dropout;
  return model_from_hf(json, name);
}

class ModelsGrid : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelsGrid, TrainsAlikeOnEveryMesh) {
  TemporaryFolder folder;
  Config one = tiny_config(folder, "one");
  one.model = golden_model(GetParam());
  one.training.steps = 5;
  const TinyRun reference = run(one);
  const auto weights = read_states(one, 5);
  const struct {
    int dp_replicate, dp_shard, tp, zero;
    bool sequence_parallel;
    Recompute recompute;
  } points[] = {{1, 1, 2, 3, false, Recompute::kSelective},
                {1, 2, 2, 3, true, Recompute::kFull},
                {2, 1, 2, 1, true, Recompute::kNone},
                {1, 1, 4, 2, true, Recompute::kSelective},
                {1, 4, 1, 3, false, Recompute::kNone}};
  for (const auto& p : points) {
    const std::string name = std::to_string(p.dp_replicate) + "x" + std::to_string(p.dp_shard) +
                             "x" + std::to_string(p.tp);
    SCOPED_TRACE(name);
    Config config = one;
    config.run.dir = folder / name;
    config.parallel.dp_replicate = p.dp_replicate;
    config.parallel.dp_shard = p.dp_shard;
    config.parallel.tp = p.tp;
    config.parallel.zero = p.zero;
    config.parallel.sequence_parallel = p.sequence_parallel;
    config.memory.recompute = p.recompute;
    expect_close(run(config), reference, kMetrics);
    expect_weights_close(read_states(config, 5), weights, 5, kWeights);
  }
}

// Known fault N13: a new dropout mask in the recomputation.
TEST_P(ModelsGrid, RecomputeWithDropoutChangesNoBit) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "kept");
  config.model = golden_model(GetParam(), /*dropout=*/0.1);
  config.training.steps = 3;
  config.parallel.dp_shard = config.parallel.tp = 2;
  const TinyRun kept = run(config);
  const auto states = read_states(config, 3);
  for (const Recompute recompute : {Recompute::kFull, Recompute::kSelective}) {
    config.run.dir = folder / std::to_string(static_cast<int>(recompute));
    config.memory.recompute = recompute;
    expect_identical(run(config), kept);
    EXPECT_EQ(read_states(config, 3), states);
  }
}

// Known faults E01, E02: evaluation changed training, or dropped.
TEST_P(ModelsGrid, EvaluationChangesAndDropsNothing) {
  TemporaryFolder folder;
  Config config = tiny_config(folder, "without");
  config.model = golden_model(GetParam(), /*dropout=*/0.1);
  config.training.steps = 3;
  config.parallel.tp = 2;
  const TinyRun without = run(config);
  config.run.dir = folder / "with";
  config.data.valid = config.data.train;
  config.eval.every = 1;
  config.eval.batches = 2;
  expect_identical(run(config), without);

  config.run.dir = folder / "dropping";
  config.optimizer.lr = 1e-30;  // the weights stay as they are
  config.optimizer.weight_decay = 0.0;
  config.training.steps = 2;
  const TinyRun dropping = run(config);
  EXPECT_EQ(dropping.evals[0].at("eval_loss"), dropping.evals[1].at("eval_loss"));
  config.run.dir = folder / "plain";
  for (ModelKey& key : config.model->keys())
    if (key.role == KeyRole::kDropoutRate) *std::get<RealValue>(key.value).value = 0.0;
  const TinyRun plain = run(config);
  EXPECT_EQ(dropping.evals[0].at("eval_loss"), plain.evals[0].at("eval_loss"));
  EXPECT_NE(dropping.steps[0].at("loss"), plain.steps[0].at("loss"));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelsGrid, ::testing::ValuesIn(kGoldenLanguageModels),
                         [](const auto& model) { return golden_test_name(model.param); });

}  // namespace
}  // namespace tessera

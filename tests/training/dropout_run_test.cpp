// Training with dropout: the same masks on every mesh, in every split, recomputed and resumed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "data/token_source.h"
#include "training/loop/batches.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

struct Case {
  int dp;
  int tp;
  int64_t micro_batch_size;
};

Config dropping(const TemporaryFolder& folder, const Case& c, const std::string& name) {
  Config config = tiny_config(folder, name);
  sizes(config).attention_dropout = 0.1;
  sizes(config).hidden_dropout = 0.1;
  sizes(config).embedding_dropout = 0.1;
  config.training.steps = 5;
  config.parallel.dp_shard = c.dp;
  config.parallel.tp = c.tp;
  config.training.micro_batch_size = c.micro_batch_size;
  return config;
}

// On 3 ranks some rows only fill up.
TEST(DropoutRun, SameOnEveryMeshAndInEverySplit) {
  TemporaryFolder folder;
  const Config reference_config = dropping(folder, {1, 1, 16}, "reference");
  const TinyRun reference = run(reference_config);
  const auto states = read_states(reference_config, 5);
  for (const Case& c : {Case{1, 1, 4}, Case{2, 1, 8}, Case{1, 2, 16}, Case{2, 2, 2}, Case{1, 4, 5},
                        Case{4, 1, 1}, Case{3, 1, 2}}) {
    const std::string name = std::to_string(c.dp) + "x" + std::to_string(c.tp);
    SCOPED_TRACE(name);
    Config config = dropping(folder, c, name);
    expect_close(run(config), reference, 1e-5);
    expect_weights_close(read_states(config, 5), states, 5, 2e-5);
    if (c.tp == 1) continue;
    config.run.dir = folder / (name + "-sequence-parallel");
    config.parallel.sequence_parallel = true;
    expect_close(run(config), reference, 1e-5);
    expect_weights_close(read_states(config, 5), states, 5, 2e-5);
  }
}

// Known fault N13: a new mask in the recomputation.
TEST(DropoutRun, RecomputeChangesNoBit) {
  TemporaryFolder folder;
  for (const Case& c : {Case{1, 1, 4}, Case{2, 2, 4}}) {
    const std::string name = std::to_string(c.dp);
    Config config = dropping(folder, c, "kept" + name);
    const TinyRun kept = run(config);
    const auto states = read_states(config, 5);
    for (const Recompute recompute : {Recompute::kFull, Recompute::kSelective}) {
      const bool full = recompute == Recompute::kFull;
      config.run.dir = folder / ((full ? "full" : "selective") + name);
      config.memory.recompute = recompute;
      config.debug.poison_released = true;
      expect_identical(run(config), kept);
      EXPECT_EQ(read_states(config, 5), states);
    }
  }
}

// Untied and tied, all at once, in fp64: not a digit of the sums is lost anywhere.
TEST(DropoutRun, Fp64AgreesToItsLastDigits) {
  TemporaryFolder folder;
  for (const bool tied : {false, true}) {
    const auto config_of = [&](const Case& c) {
      Config config = dropping(folder, c, (tied ? "tied" : "untied") + std::to_string(c.tp));
      sizes(config).tie_word_embeddings = tied;
      config.precision.params = ParamsDtype::kFp64;
      return config;
    };
    const TinyRun reference = run(config_of({1, 1, 16}));
    Config config = config_of({2, 4, 2});
    config.memory.recompute = Recompute::kSelective;
    expect_close(run(config), reference, 1e-12);
  }
}

// Halves carry 8 and 11 bits, so another order of additions shows; a lost or doubled part would at
// once. Norms and the head stay in fp32.
TEST(DropoutRun, HalvesFollowFp32OnEveryMesh) {
  TemporaryFolder folder;
  const TinyRun fp32 = run(dropping(folder, {1, 1, 16}, "fp32"));
  for (const auto& [dtype, tolerance] :
       {std::pair{ParamsDtype::kBf16, 0.01}, {ParamsDtype::kFp16, 0.003}}) {
    for (const Case& c : {Case{1, 1, 16}, Case{2, 2, 4}}) {
      const std::string name = std::to_string(static_cast<int>(dtype)) + std::to_string(c.dp);
      Config config = dropping(folder, c, name);
      config.precision.params = dtype;
      config.precision.keep_fp32 = {"*norm*", "lm_head*"};
      const TinyRun result = run(config);
      for (size_t i = 0; i < fp32.steps.size(); ++i) {
        const double wanted = fp32.steps[i].at("loss");
        EXPECT_NEAR(result.steps[i].at("loss").get<double>(), wanted, tolerance * wanted) << name;
      }
    }
  }
}

TEST(DropoutRun, ResumeGoesOnWithTheSameMasks) {
  TemporaryFolder folder;
  Config config = dropping(folder, {2, 1, 4}, "whole");
  const TinyRun whole = run(config);
  const auto states = read_states(config, 5);
  config.run.dir = folder / "parts";
  config.training.stop_after = 2;
  EXPECT_EQ(run(config).outcome, TrainOutcome::kStoppedAfterSave);
  config.training.stop_after.reset();
  expect_identical(run(config), whole);
  EXPECT_EQ(read_states(config, 5), states);
}

TEST(Batches, NameTheirRowsInTheRun) {
  TemporaryFolder folder;
  write_tokens(folder / "tokens", 20 * 16 + 1);
  const TokenSource source({folder / "tokens"}, 16, 64);
  const std::vector<int64_t> samples = {9, 3, 5, 1, 7};
  // Micro-batch 1 of rank 0 of 2, in rows of 2: rows 4 and 5 of 5 samples.
  const BatchShape shape{2, 2, 0};
  const MicroBatch batch = load_micro_batch(source, samples, shape, 1, 30);
  EXPECT_TRUE(at::equal(batch.rows, at::tensor({int64_t{34}, int64_t{35}})));
  EXPECT_EQ(batch.weights[0][0].item<float>(), 1.0F / 80);
  EXPECT_EQ(batch.weights[1][0].item<float>(), 0.0F);  // row 35 only fills up
  EXPECT_FALSE(load_micro_batch(source, samples, shape, 1, std::nullopt).rows.defined());
  BatchShape wide = shape;
  wide.weights = at::kDouble;
  EXPECT_EQ(load_micro_batch(source, samples, wide, 0, 30).weights[0][0].item<double>(), 1.0 / 80);
}

}  // namespace
}  // namespace tessera

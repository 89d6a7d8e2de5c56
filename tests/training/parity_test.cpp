// The same numbers on every mesh: ten steps of a small fp32 model against one rank.
#include <gtest/gtest.h>

#include <functional>

#include "training/tiny_run.h"

namespace tessera {
namespace {

// Sums over ranks change the order of fp32 additions: 1e-5 relative for loss and norm, and 2e-5 of
// the weights' scale after ten AdamW steps.
constexpr double kMetricTolerance = 1e-5;
constexpr double kWeightTolerance = 2e-5;

struct Case {
  int dp;
  int tp;
  int64_t accumulation;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return "dp" + std::to_string(info.param.dp) + "_tp" + std::to_string(info.param.tp) +
         "_accumulate" + std::to_string(info.param.accumulation);
}

Config config_of(const TemporaryFolder& folder, const Case& c, const std::string& name) {
  Config config = tiny_config(folder, name);
  config.parallel.dp_shard = c.dp;
  config.parallel.tp = c.tp;
  // Rounded up: on 3 ranks some rows only fill up.
  const int64_t parts = c.dp * c.accumulation;
  config.training.micro_batch_size = (config.training.global_batch_size + parts - 1) / parts;
  return config;
}

class Parity : public testing::TestWithParam<Case> {};

TEST_P(Parity, EqualsOneRank) {
  TemporaryFolder folder;
  const Config reference_config = config_of(folder, {1, 1, 1}, "reference");
  const TinyRun reference = run(reference_config);
  ASSERT_EQ(reference.steps.size(), 10U);
  EXPECT_LT(reference.steps.back().at("loss").get<double>(),
            reference.steps.front().at("loss").get<double>());

  const Config config = config_of(folder, GetParam(), "mesh");
  const TinyRun result = run(config);
  expect_close(result, reference, kMetricTolerance);
  expect_weights_close(read_states(config, 10), read_states(reference_config, 10), 10,
                       kWeightTolerance);
}

TEST_P(Parity, RecomputeChangesNoBit) {
  TemporaryFolder folder;
  Config config = config_of(folder, GetParam(), "kept");
  const TinyRun kept = run(config);
  const auto kept_states = read_states(config, 10);
  config.run.dir = folder / "recomputed";
  config.memory.recompute = Recompute::kFull;
  expect_identical(run(config), kept);
  EXPECT_EQ(read_states(config, 10), kept_states);
}

TEST_P(Parity, PoisonedReleasedParametersChangeNoBit) {
  TemporaryFolder folder;
  Config config = config_of(folder, GetParam(), "plain");
  config.training.steps = 3;
  const TinyRun plain = run(config);
  config.run.dir = folder / "poisoned";
  config.debug.poison_released = true;
  expect_identical(run(config), plain);
}

INSTANTIATE_TEST_SUITE_P(Meshes, Parity,
                         testing::Values(Case{1, 1, 1}, Case{2, 1, 1}, Case{1, 2, 1}, Case{2, 2, 1},
                                         Case{4, 1, 1}, Case{1, 4, 1}, Case{3, 1, 1}, Case{1, 1, 4},
                                         Case{2, 1, 4}, Case{1, 2, 4}, Case{2, 2, 4}, Case{4, 1, 4},
                                         Case{1, 4, 4}, Case{3, 1, 4}),
                         name_of);

// Halves carry 8 or 11 bits, so another order of additions shows; but meshes agree with each other
// far better than a half agrees with fp32, and a lost or doubled contribution would show at once.
struct Precision {
  const char* name;
  std::function<void(PrecisionSection&)> set;
};

class HalfParity : public testing::TestWithParam<Precision> {};

TEST_P(HalfParity, AgreesAmongMeshesAndFollowsFp32) {
  TemporaryFolder folder;
  const TinyRun fp32 = run(config_of(folder, {1, 1, 1}, "fp32"));
  for (const Case& c :
       {Case{1, 1, 1}, Case{2, 1, 1}, Case{2, 2, 1}, Case{4, 1, 4}, Case{1, 4, 1}}) {
    for (int zero : {0, 3}) {
      Config config =
          config_of(folder, c, std::to_string(zero) + std::to_string(c.dp) + std::to_string(c.tp));
      config.parallel.zero = zero;
      GetParam().set(config.precision);
      const TinyRun result = run(config);
      ASSERT_EQ(result.steps.size(), fp32.steps.size());
      for (size_t i = 0; i < fp32.steps.size(); ++i) {
        for (const char* key : {"loss", "grad_norm"}) {
          const double wanted = fp32.steps[i].at(key);
          EXPECT_NEAR(result.steps[i].at(key).get<double>(), wanted, 0.01 * wanted)
              << key << " of step " << i + 1 << " at " << c.dp << "x" << c.tp << " zero " << zero;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, HalfParity,
    testing::Values(Precision{"bf16", [](PrecisionSection& p) { p.params = ParamsDtype::kBf16; }},
                    Precision{"fp16", [](PrecisionSection& p) { p.params = ParamsDtype::kFp16; }},
                    Precision{"bf16_with_fp32_norms",
                              [](PrecisionSection& p) {
                                p.params = ParamsDtype::kBf16;
                                p.keep_fp32 = {"*norm.weight"};
                              }},
                    Precision{"bf16_with_fp32_products",
                              [](PrecisionSection& p) {
                                p.params = ParamsDtype::kBf16;
                                p.keep_fp32 = {"*_proj.weight", "lm_head.weight"};
                              }},
                    Precision{"bf16_between_fp32_stages",
                              [](PrecisionSection& p) {
                                p.params = ParamsDtype::kBf16;
                                p.output = OutputDtype::kFp32;
                              }},
                    Precision{"bf16_reduced_in_bf16",
                              [](PrecisionSection& p) {
                                p.params = ParamsDtype::kBf16;
                                p.reduce = ReduceDtype::kBf16;
                                p.buffers = BufferDtype::kBf16;
                              }},
                    Precision{"fp32_reduced_in_bf16",
                              [](PrecisionSection& p) { p.reduce = ReduceDtype::kBf16; }},
                    Precision{"fp32_over_a_bf16_wire",
                              [](PrecisionSection& p) { p.reduce = ReduceDtype::kBf16Wire; }}),
    [](const auto& test) { return std::string(test.param.name); });

// The choice of precision must not depend on whether there is more than one data-parallel rank:
// with the same rows a rank, the same rounding.
TEST(Precision, RoundsGradientsWithOneRankToo) {
  TemporaryFolder folder;
  Config config = config_of(folder, {1, 1, 1}, "wide");
  const TinyRun wide = run(config);
  config.run.dir = folder / "wire";
  config.precision.reduce = ReduceDtype::kBf16Wire;
  const TinyRun wire = run(config);
  EXPECT_EQ(wire.steps[0].at("loss"), wide.steps[0].at("loss"));
  EXPECT_NE(wire.steps[0].at("grad_norm"), wide.steps[0].at("grad_norm"));
}

// What tensor parallelism can do to a model, all at once: one kv head on all ranks of tp, or two; a
// vocabulary that it does not divide; with and without sequence parallelism.
TEST(Parity, TensorParallelismInFull) {
  TemporaryFolder folder;
  for (const int64_t kv_heads : {1, 2}) {
    const auto config_for = [&](const Case& c, bool sequence_parallel) {
      Config config = config_of(folder, c,
                                std::to_string(kv_heads) + std::to_string(c.dp) +
                                    std::to_string(c.tp) + (sequence_parallel ? "s" : ""));
      sizes(config).num_key_value_heads = kv_heads;
      sizes(config).vocab_size = 71;
      config.parallel.sequence_parallel = sequence_parallel;
      config.debug.compare_replicas_every = 1;
      return config;
    };
    const Config reference_config = config_for({1, 1, 1}, false);
    const TinyRun reference = run(reference_config);
    const auto weights = read_states(reference_config, 10);
    for (const Case& c : {Case{1, 2, 1}, Case{1, 4, 4}, Case{2, 4, 1}, Case{3, 2, 1}}) {
      for (const bool sequence_parallel : {false, true}) {
        SCOPED_TRACE(std::to_string(c.dp) + "x" + std::to_string(c.tp) + " kv heads " +
                     std::to_string(kv_heads) + (sequence_parallel ? " sequence parallel" : ""));
        const Config config = config_for(c, sequence_parallel);
        expect_close(run(config), reference, kMetricTolerance);
        expect_weights_close(read_states(config, 10), weights, 10, kWeightTolerance);
      }
    }
  }
}

// What runs beside the communication of tensor parallelism changes the order of additions at most.
TEST(Parity, OverlapsOfTensorParallelism) {
  TemporaryFolder folder;
  for (const Case& c : {Case{1, 2, 1}, Case{1, 4, 1}, Case{2, 2, 4}}) {
    const auto config_for = [&](const std::string& name, TpOverlap mode, bool sequence_parallel) {
      Config config = config_of(folder, c, name + std::to_string(c.dp) + std::to_string(c.tp));
      sizes(config).hidden_dropout = 0.1;
      config.parallel.sequence_parallel = sequence_parallel;
      config.parallel.tp_overlap = mode;
      return config;
    };
    const Config off = config_for("off", TpOverlap::kOff, false);
    const TinyRun reference = run(off);
    const auto weights = read_states(off, 10);
    const Config backward = config_for("backward", TpOverlap::kBackward, false);
    expect_identical(run(backward), reference);
    EXPECT_EQ(read_states(backward, 10), weights);
    for (const auto mode : {TpOverlap::kOff, TpOverlap::kBackward, TpOverlap::kRing}) {
      SCOPED_TRACE(std::to_string(c.dp) + "x" + std::to_string(c.tp) + " overlap " +
                   std::to_string(static_cast<int>(mode)));
      const Config config =
          config_for("sequence" + std::to_string(static_cast<int>(mode)), mode, true);
      const TinyRun result = run(config);
      expect_close(result, reference, kMetricTolerance);
      expect_weights_close(read_states(config, 10), weights, 10, kWeightTolerance);
      EXPECT_GT(result.steps[0].at("tp_ms").get<double>(), 0.0);
      EXPECT_GE(result.steps[0].at("tp_hidden").get<double>(), 0.0);
    }
  }
}

// Chunks of the loss change the order of additions at most.
TEST(Parity, ChunksOfTheLoss) {
  TemporaryFolder folder;
  const Config whole = config_of(folder, {1, 2, 1}, "whole");
  const TinyRun reference = run(whole);
  for (const bool sequence_parallel : {false, true}) {
    Config config = config_of(folder, {1, 2, 1}, sequence_parallel ? "sequence" : "chunks");
    config.parallel.sequence_parallel = sequence_parallel;
    config.memory.loss_chunk = 10;
    expect_close(run(config), reference, kMetricTolerance);
  }
}

TEST(Parity, InitialWeightsAreTheSameBitsOnEveryMesh) {
  TemporaryFolder folder;
  std::map<std::string, std::vector<double>> reference;
  for (const Case& c : {Case{1, 1, 1}, Case{2, 1, 1}, Case{1, 2, 1}, Case{2, 2, 1}, Case{4, 1, 1},
                        Case{1, 4, 1}, Case{3, 1, 1}}) {
    Config config = config_of(folder, c, "init-" + std::to_string(c.dp) + std::to_string(c.tp));
    config.training.steps = 1;
    config.optimizer.lr = 1e-30;  // the update is below one bit of any weight
    config.optimizer.weight_decay = 0.0;
    sizes(config).num_key_value_heads = 2;
    sizes(config).vocab_size = 67;
    run(config);
    auto weights = read_states(config, 1);
    std::erase_if(weights, [](const auto& entry) { return !entry.first.ends_with("/param"); });
    if (reference.empty()) reference = weights;
    EXPECT_EQ(weights, reference) << c.dp << "x" << c.tp;
  }
}

}  // namespace
}  // namespace tessera

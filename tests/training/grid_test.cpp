// The same numbers whatever the layout: every mesh up to 8 ranks x every stage of ZeRO x
// accumulation x recompute x tied and untied embeddings, against one rank; where tp is above 1 also
// with sequence parallelism, fewer kv heads than tp and a vocabulary that tp does not divide; and
// the stages of ZeRO against each other, bit for bit. Ranks are threads, and every run is the real
// train().
#include <gtest/gtest.h>

#include "training/tiny_run.h"

namespace tessera {
namespace {

constexpr int64_t kSteps = 5;

// Only the order of additions differs. Weights: of their scale after five AdamW steps (tiny_run.h).
struct Tolerance {
  double metrics;
  double weights;
  double rounding;
};
constexpr Tolerance kFp32{1e-5, 2e-5, kGradientRounding32};
constexpr Tolerance kFp64{1e-12, 1e-9, kGradientRounding64};

struct Mesh3 {
  int dp_replicate, dp_shard, tp;
  std::string text() const {
    return std::to_string(dp_replicate) + "x" + std::to_string(dp_shard) + "x" + std::to_string(tp);
  }
};

std::vector<Mesh3> meshes() {
  std::vector<Mesh3> all;
  for (int replicate : {1, 2, 4})
    for (int shard : {1, 2, 4})
      for (int tp : {1, 2, 4})
        if (replicate * shard * tp <= 8) all.push_back({replicate, shard, tp});
  return all;
}

struct GridModel {
  bool tied;
  ParamsDtype dtype;
  int64_t kv_heads = 4;  // of 4 heads
  int64_t vocab = 64;
  bool sequence_parallel = false;

  // Whether it is about tensor parallelism alone.
  bool needs_tp() const { return kv_heads != 4 || vocab != 64 || sequence_parallel; }
  std::string text() const {
    return std::string(tied ? "tied" : "untied") +
           (dtype == ParamsDtype::kFp64   ? "_fp64"
            : dtype == ParamsDtype::kBf16 ? "_bf16"
                                          : "_fp32") +
           (kv_heads == 4 ? "" : "_kv" + std::to_string(kv_heads)) +
           (vocab == 64 ? "" : "_vocab" + std::to_string(vocab)) +
           (sequence_parallel ? "_sequence_parallel" : "");
  }
};

// A smaller model than the other tests': there are hundreds of runs.
Config grid_config(const TemporaryFolder& folder, const std::string& name, const Mesh3& mesh,
                   const GridModel& model) {
  Config config = tiny_config(folder, name);
  sizes(config).hidden_size = 32;
  sizes(config).intermediate_size = 48;
  sizes(config).num_attention_heads = 4;
  sizes(config).num_key_value_heads = model.kv_heads;
  sizes(config).vocab_size = model.vocab;
  sizes(config).tie_word_embeddings = model.tied;
  config.parallel.dp_replicate = mesh.dp_replicate;
  config.parallel.dp_shard = mesh.dp_shard;
  config.parallel.tp = mesh.tp;
  config.parallel.sequence_parallel = model.sequence_parallel;
  config.precision.params = model.dtype;
  config.data.seq_len = 8;
  config.training.steps = kSteps;
  config.training.global_batch_size = 24;
  config.training.micro_batch_size = 24;
  return config;
}

// A point of the grid that is run against one rank.
struct Layout {
  Mesh3 mesh;
  int zero;
  int accumulation;
  Recompute recompute;
};

void expect_equal(const TemporaryFolder& folder, const std::string& name, const Layout& layout,
                  const GridModel& model, const TinyRun& reference,
                  const std::map<std::string, std::vector<double>>& weights) {
  SCOPED_TRACE(layout.mesh.text() + " zero " + std::to_string(layout.zero) + " accumulation " +
               std::to_string(layout.accumulation) +
               (layout.recompute == Recompute::kFull ? " recompute" : ""));
  const Tolerance tolerance = model.dtype == ParamsDtype::kFp64 ? kFp64 : kFp32;
  Config config = grid_config(folder, name, layout.mesh, model);
  config.parallel.zero = layout.zero;
  config.memory.recompute = layout.recompute;
  config.training.micro_batch_size =
      24 / (layout.mesh.dp_replicate * layout.mesh.dp_shard * layout.accumulation);
  config.debug.poison_released = true;
  const TinyRun result = run(config);
  expect_close(result, reference, tolerance.metrics);
  expect_weights_close(read_states(config, kSteps), weights, kSteps, tolerance.weights,
                       tolerance.rounding);
  std::filesystem::remove_all(config.run.dir);
}

class Grid : public testing::TestWithParam<std::tuple<int, GridModel>> {};

TEST_P(Grid, EqualsOneRank) {
  const auto& [zero, model] = GetParam();
  TemporaryFolder folder;
  const Config one = grid_config(folder, "one", {1, 1, 1}, model);
  const TinyRun reference = run(one);
  const auto weights = read_states(one, kSteps);
  ASSERT_LT(reference.steps.back().at("loss").get<double>(),
            reference.steps.front().at("loss").get<double>());
  int number = 0;
  for (const Mesh3& mesh : meshes()) {
    if (model.needs_tp() && mesh.tp == 1) continue;
    for (int accumulation : {1, 3}) {
      for (Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        expect_equal(folder, std::to_string(number++), {mesh, zero, accumulation, recompute}, model,
                     reference, weights);
        if (HasFailure()) return;
      }
    }
  }
}

// Every mesh with two stages of ZeRO each, accumulation, recompute and sequence parallelism in
// turn: few enough points (34) for the thread sanitizer.
TEST(Diagonal, EqualsOneRank) {
  TemporaryFolder folder;
  GridModel model{/*tied=*/false, ParamsDtype::kFp32, /*kv_heads=*/2, /*vocab=*/67};
  const Config one = grid_config(folder, "one", {1, 1, 1}, model);
  const TinyRun reference = run(one);
  const auto weights = read_states(one, kSteps);
  int number = 0;
  for (const Mesh3& mesh : meshes()) {
    for (int zero : {number / 2 % 4, (number / 2 + 2) % 4}) {
      const int accumulation = number % 3 == 0 ? 3 : 1;
      const Recompute recompute = number % 4 < 2 ? Recompute::kNone : Recompute::kFull;
      model.sequence_parallel = number % 2 == 0;
      expect_equal(folder, std::to_string(number++), {mesh, zero, accumulation, recompute}, model,
                   reference, weights);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Grid,
    testing::Combine(testing::Values(0, 1, 2, 3),
                     testing::Values(GridModel{false, ParamsDtype::kFp32},
                                     GridModel{true, ParamsDtype::kFp32},
                                     GridModel{false, ParamsDtype::kFp64},
                                     GridModel{true, ParamsDtype::kFp64},
                                     GridModel{false, ParamsDtype::kFp32, /*kv_heads=*/1},
                                     GridModel{true, ParamsDtype::kFp32, 4, 64, true},
                                     GridModel{true, ParamsDtype::kFp64, 2, 67, true})),
    [](const auto& test) {
      return "zero" + std::to_string(std::get<0>(test.param)) + "_" +
             std::get<1>(test.param).text();
    });

// Without accumulation all sums have one order, so nothing differs at all.
class Bits : public testing::TestWithParam<GridModel> {};

TEST_P(Bits, AreTheSameAtEveryStageOfZero) {
  TemporaryFolder folder;
  for (const Mesh3& mesh : meshes()) {
    if (GetParam().needs_tp() && mesh.tp == 1) continue;
    TinyRun reference;
    std::map<std::string, std::vector<double>> states;
    for (int zero : {3, 2, 1, 0}) {
      SCOPED_TRACE(mesh.text() + " zero " + std::to_string(zero));
      Config config = grid_config(folder, mesh.text() + std::to_string(zero), mesh, GetParam());
      config.parallel.zero = zero;
      config.training.micro_batch_size = 24 / (mesh.dp_replicate * mesh.dp_shard);
      const TinyRun result = run(config);
      const auto found = read_states(config, kSteps);
      if (zero == 3) {
        reference = result;
        states = found;
      }
      expect_identical(result, reference);
      EXPECT_EQ(found, states);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Bits,
                         testing::Values(GridModel{false, ParamsDtype::kFp32},
                                         GridModel{true, ParamsDtype::kFp32},
                                         GridModel{false, ParamsDtype::kBf16},
                                         GridModel{true, ParamsDtype::kBf16},
                                         GridModel{false, ParamsDtype::kFp32, 2, 67, true},
                                         GridModel{true, ParamsDtype::kBf16, 1, 67, true}),
                         [](const auto& test) { return test.param.text(); });

// What changes when and where communication runs, but no number.
TEST(Schedule, ChangesNoBit) {
  TemporaryFolder folder;
  const auto config_of = [&](const std::string& name) {
    Config config = grid_config(folder, name, {2, 2, 1}, {/*tied=*/true, ParamsDtype::kFp32});
    config.training.micro_batch_size = 2;  // three micro-batches
    return config;
  };
  const Config plain = config_of("plain");
  const TinyRun reference = run(plain);
  const auto states = read_states(plain, kSteps);
  const auto check = [&](const std::string& name, const std::function<void(Config&)>& change) {
    SCOPED_TRACE(name);
    Config config = config_of(name);
    config.debug.poison_released = true;
    change(config);
    expect_identical(run(config), reference);
    EXPECT_EQ(read_states(config, kSteps), states);
  };
  check("serial", [](Config& c) { c.debug.overlap = false; });
  check("prefetch-0", [](Config& c) { c.parallel.prefetch = 0; });
  check("prefetch-2", [](Config& c) { c.parallel.prefetch = 2; });
  check("reshard-never", [](Config& c) { c.parallel.reshard_after_forward = kReshardNever; });
  check("reshard-2", [](Config& c) { c.parallel.reshard_after_forward = 2; });
  check("recompute", [](Config& c) { c.memory.recompute = Recompute::kFull; });
  check("recompute-every-2", [](Config& c) {
    c.memory.recompute = Recompute::kFull;
    c.memory.recompute_every = 2;
  });
  check("recompute-selective", [](Config& c) { c.memory.recompute = Recompute::kSelective; });
  check("zero-2", [](Config& c) { c.parallel.zero = 2; });
  check("checked", [](Config& c) { c.debug.check_collectives = true; });
}

// Gradients kept in full over the micro-batches: another order of sums, the same numbers.
TEST(Schedule, OneReductionAStepEqualsOneAMicroBatch) {
  TemporaryFolder folder;
  for (bool tied : {false, true}) {
    const auto config_of = [&](const std::string& name) {
      Config config =
          grid_config(folder, name + (tied ? "-tied" : ""), {2, 2, 1}, {tied, ParamsDtype::kFp32});
      config.training.micro_batch_size = 2;
      return config;
    };
    const Config plain = config_of("plain");
    const TinyRun reference = run(plain);
    for (int zero : {2, 3}) {
      Config config = config_of("once-" + std::to_string(zero));
      config.parallel.zero = zero;
      config.parallel.reduce_per_micro_batch = AutoFlag::kFalse;
      expect_close(run(config), reference, kFp32.metrics);
      expect_weights_close(read_states(config, kSteps), read_states(plain, kSteps), kSteps,
                           kFp32.weights);
    }
  }
}

}  // namespace
}  // namespace tessera

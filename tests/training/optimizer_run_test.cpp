// Optimizers, parameter groups and clipping in whole runs, on several meshes and across a resume.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "checkpoint/huggingface/consolidate.h"
#include "support/error_of.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

Config test_config(const TemporaryFolder& folder, const std::string& name, int dp, int tp) {
  Config config = tiny_config(folder, name);
  config.parallel.dp_shard = dp;
  config.parallel.tp = tp;
  return config;
}

struct Kind {
  const char* name;
  OptimizerConfig optimizer;
  std::vector<std::string> states;
};

std::vector<Kind> kinds() {
  OptimizerConfig base;
  base.lr = kLearningRate;
  std::vector<Kind> kinds = {{"adam", base, {"param", "exp_avg", "exp_avg_sq"}},
                             {"bf16-moments", base, {"param", "exp_avg", "exp_avg_sq"}},
                             {"sgd", base, {"param"}},
                             {"nesterov", base, {"param", "momentum"}}};
  kinds[0].optimizer.type = OptimizerType::kAdam;
  kinds[1].optimizer.moments = MomentsDtype::kBf16;
  kinds[2].optimizer.type = kinds[3].optimizer.type = OptimizerType::kSgd;
  kinds[2].optimizer.lr = kinds[3].optimizer.lr = 0.1;
  kinds[3].optimizer.momentum = 0.9;
  kinds[3].optimizer.nesterov = true;
  return kinds;
}

TEST(Optimizers, TrainAlikeOnEveryMeshAndResumeBitForBit) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    TemporaryFolder folder;
    Config whole = test_config(folder, "whole", 2, 2);
    whole.optimizer = kind.optimizer;
    const TinyRun reference = run(whole);
    EXPECT_LT(reference.steps[9].at("loss"), reference.steps[0].at("loss"));
    Config one = test_config(folder, "one", 1, 1);
    one.optimizer = kind.optimizer;
    expect_close(run(one), reference, 1e-5);
    Config halves = test_config(folder, "halves", 2, 2);
    halves.optimizer = kind.optimizer;
    halves.training.stop_after = 5;
    run(halves);
    expect_identical(run(halves), reference);
    EXPECT_EQ(read_states(halves, 10), read_states(whole, 10));

    CheckpointReader reader(std::filesystem::path(whole.run.dir) / "checkpoints" /
                            step_dir_name(10));
    EXPECT_EQ(reader.manifest().states, kind.states);
    if (kind.optimizer.moments == MomentsDtype::kBf16) {
      EXPECT_EQ(reader.stored_dtype(kEmbedding, "exp_avg"), Dtype::kBF16);
      EXPECT_EQ(reader.stored_dtype(kEmbedding, "param"), Dtype::kF32);
    }
  }
}

TEST(Optimizers, AnotherTypeOrMomentsDtypeIsRefusedOnResume) {
  TemporaryFolder folder;
  Config config = test_config(folder, "run", 1, 1);
  config.training.stop_after = 5;
  run(config);
  Config other = config;
  other.optimizer.type = OptimizerType::kSgd;
  other.optimizer.momentum = 0.9;
  std::string error = error_of([&] { run(other); });
  EXPECT_NE(error.find("optimizer.type: adamw -> sgd"), std::string::npos) << error;
  other = config;
  other.optimizer.moments = MomentsDtype::kBf16;
  error = error_of([&] { run(other); });
  EXPECT_NE(error.find("optimizer.moments: fp32 -> bf16"), std::string::npos) << error;
}

TEST(Groups, FrozenParametersStayAndHaveNoOtherState) {
  TemporaryFolder folder;
  Config config = test_config(folder, "frozen", 2, 1);
  config.training.steps = 50;
  config.optimizer.groups = {{.params = {"*embed*"}, .frozen = true}};
  config.training.log_stage_norms = true;
  config.checkpoint.every = 1;
  const TinyRun result = run(config);
  const auto first = read_states(config, 1), last = read_states(config, 50);
  const std::string embedding = std::string(kEmbedding) + "/param";
  EXPECT_EQ(last.at(embedding), first.at(embedding));
  EXPECT_NE(last.at("lm_head.weight/param"), first.at("lm_head.weight/param"));
  EXPECT_FALSE(last.contains(std::string(kEmbedding) + "/exp_avg"));
  EXPECT_TRUE(last.contains("lm_head.weight/exp_avg"));

  Config free = test_config(folder, "free", 2, 1);
  free.training.log_stage_norms = true;
  const auto norms = run(free).steps[0].at("stage_norms");
  double rest = 0.0;
  for (const auto& [stage, norm] : norms.items())
    if (stage != "embedding") rest += norm.get<double>() * norm.get<double>();
  EXPECT_NEAR(result.steps[0].at("grad_norm").get<double>(), std::sqrt(rest), 1e-6);
  EXPECT_EQ(result.steps[0].at("stage_norms").at("embedding"), 0.0);

  const auto step_dir = std::filesystem::path(config.run.dir) / "checkpoints" / step_dir_name(50);
  consolidate(step_dir, folder / "hf", {});
  std::ifstream file(folder / "hf/model.safetensors", std::ios::binary);
  std::string header(4096, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  EXPECT_NE(header.find(kEmbedding), std::string::npos);

  config.training.steps = 52;  // and it resumes
  EXPECT_EQ(run(config).steps.size(), 52U);
}

TEST(Groups, OneThatFitsNothingIsAnError) {
  TemporaryFolder folder;
  Config config = test_config(folder, "run", 1, 1);
  config.optimizer.groups = {{.params = {"model.layers.*.self_attn.q_prj.weight"}}};
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("names near it: model.layers.*.self_attn.q_proj.weight"), std::string::npos)
      << error;
}

TEST(Clipping, StageNormsAddUpToTheNormAndChangeNothing) {
  for (const auto& [dp, tp] : {std::pair{1, 1}, {2, 2}}) {
    TemporaryFolder folder;
    const TinyRun plain = run(test_config(folder, "plain", dp, tp));
    Config config = test_config(folder, "stages", dp, tp);
    config.training.log_stage_norms = true;
    const TinyRun stages = run(config);
    expect_identical(stages, plain);
    for (const auto& step : stages.steps) {
      double sum = 0.0;
      for (const auto& [stage, norm] : step.at("stage_norms").items())
        sum += norm.get<double>() * norm.get<double>();
      EXPECT_EQ(step.at("stage_norms").size(), 4U);  // embedding, two blocks, head
      EXPECT_NEAR(std::sqrt(sum), step.at("grad_norm").get<double>(), 1e-12);
    }
  }
}

TEST(Clipping, ByValueOnEveryMesh) {
  TemporaryFolder folder;
  const auto config_of = [&](const std::string& name, int dp, int tp) {
    Config config = test_config(folder, name, dp, tp);
    config.training.clip_grad_norm = 0.0;
    config.training.clip_grad_value = 1e-3;
    config.optimizer.type = OptimizerType::kSgd;
    config.optimizer.lr = 1.0;
    return config;
  };
  const TinyRun reference = run(config_of("one", 1, 1));
  for (const auto& [dp, tp] : {std::pair{2, 1}, {1, 2}, {2, 2}, {4, 1}})
    expect_close(run(config_of(fmt::format("run-{}{}", dp, tp), dp, tp)), reference, 1e-5);
  Config off = config_of("off", 1, 1);
  off.training.clip_grad_value = 0.0;
  EXPECT_NE(run(off).steps[9].at("loss"), reference.steps[9].at("loss"));
}

}  // namespace
}  // namespace tessera

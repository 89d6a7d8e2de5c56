// What an update makes of a bucket of two parameters on several meshes: the matrix W [8, 4],
// sharded over tp, and the vector b [4], replicated.

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "optim/grad_norm.h"
#include "optim/optimizer.h"
#include "optim/parameter_groups.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/one_bucket.h"

namespace tessera {
namespace {

constexpr std::pair<int, int> kMeshes[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}};

// A bucket whose values are 1 and whose gradients are `gradient`.
struct Toy {
  Toy(Mesh& m, double gradient, const OptimizerConfig& config,
      const std::vector<ParameterGroup>& groups = {})
      : mesh(m), table(m.tp(), m.tp_rank()) {
    table.add({"W", {8, 4}, Placement::shard(0), Initializer::constant(1.0), /*decay=*/true});
    table.add({"b", {4}, Placement::replicate(), Initializer::constant(1.0), /*decay=*/false});
    resolve_groups(groups, {&table});
    BucketOptions options;
    options.policy.moments = static_cast<int>(moment_names(config).size());
    options.policy.moment_dtype = moment_dtype(config);
    bucket = std::make_unique<FlatBucket>(one_bucket(table, mesh, options));
    for (const Segment& segment : bucket->segments()) {
      part(bucket->master(), segment).fill_(1.0);
      part(bucket->grad(), segment).fill_(gradient);
    }
  }

  static at::Tensor part(const at::Tensor& state, const Segment& segment) {
    return state.narrow(0, segment.shard_offset, segment.slice.numel());
  }

  double norm() {
    at::Tensor sum =
        at::full({1}, local_squared_grad_norms({bucket.get()}, mesh).item<double>(), at::kDouble);
    mesh.world().all_reduce(sum, ReduceOp::kSum).wait();
    return std::sqrt(sum.item<double>());
  }

  void expect_values(const std::string& name, double value, double tolerance) {
    for (const Segment& segment : bucket->segments()) {
      if (segment.parameter->spec.name != name) continue;
      const at::Tensor values = part(bucket->master(), segment).to(at::kDouble);
      EXPECT_LE((values - value).abs().max().item<double>(), tolerance) << name;
    }
  }

  Mesh& mesh;
  ParameterTable table;
  std::unique_ptr<FlatBucket> bucket;
};

template <typename Body>
void on_meshes(Body body) {
  for (const auto& [dp, tp] : kMeshes) {
    SCOPED_TRACE(fmt::format("dp {} tp {}", dp, tp));
    run_thread_ranks(dp * tp, [&, dp = dp, tp = tp](Communicator& world) {
      Mesh mesh({1, dp, tp}, world.split(0, world.rank(), "world"));
      body(mesh);
    });
  }
}

OptimizerConfig plain_sgd() {
  OptimizerConfig config;
  config.type = OptimizerType::kSgd;
  config.weight_decay = 0.0;
  return config;
}

TEST(Update, ClipsByTheGlobalNormOnEveryMesh) {
  on_meshes([](Mesh& mesh) {
    for (const auto& [max_norm, value] : {std::pair{3.0, 0.5}, {12.0, 0.0}}) {
      Toy toy(mesh, 1.0, plain_sgd());
      EXPECT_EQ(toy.norm(), 6.0);
      apply_update({toy.bucket.get()}, plain_sgd(),
                   {1.0, 1, {.scale = clip_factor(6.0, max_norm)}});
      toy.expect_values("W", value, 1e-5);
      toy.expect_values("b", value, 1e-5);
    }
  });
}

TEST(Update, ClipsByValue) {
  on_meshes([](Mesh& mesh) {
    for (const double gradient : {4.0, -4.0}) {
      Toy toy(mesh, gradient, plain_sgd());
      apply_update({toy.bucket.get()}, plain_sgd(), {1.0, 1, {.scale = 0.5, .limit = 0.25}});
      toy.expect_values("W", gradient > 0 ? 0.75 : 1.25, 0.0);
    }
  });
}

// AdamW's decay of a matrix is (1 - lr * decay) per step; vectors are exempt.
TEST(Update, DecaysMatricesAloneAlsoAfterSharding) {
  on_meshes([](Mesh& mesh) {
    OptimizerConfig config;
    Toy toy(mesh, 0.0, config);
    for (int64_t step = 1; step <= 10; ++step)
      apply_update({toy.bucket.get()}, config, {0.1, step, {}});
    toy.expect_values("W", 0.904382, 1e-6);
    toy.expect_values("b", 1.0, 0.0);
  });
}

TEST(Update, GroupsRuleLearningRateAndDecay) {
  on_meshes([](Mesh& mesh) {
    OptimizerConfig config = plain_sgd();
    config.weight_decay = 0.5;
    Toy toy(mesh, 1.0, config,
            {{.params = {"b"}, .lr_scale = 2.0, .weight_decay = 1.0},
             {.params = {"*"}, .weight_decay = 0.0}});  // the first that fits rules
    apply_update({toy.bucket.get()}, config, {0.1, 1, {}});
    toy.expect_values("W", 1.0 - 0.1, 1e-7);
    toy.expect_values("b", 1.0 - 0.2 * (1.0 + 1.0), 1e-7);
  });
}

TEST(Update, MomentsAreWhatTheOptimizerNeeds) {
  run_thread_ranks(1, [](Communicator& world) {
    Mesh mesh({1, 1, 1}, world.split(0, 0, "world"));
    OptimizerConfig config = plain_sgd();
    EXPECT_TRUE(Toy(mesh, 1.0, config).bucket->moments().empty());
    config.momentum = 0.9;
    config.moments = MomentsDtype::kBf16;
    Toy toy(mesh, 1.0, config);
    ASSERT_EQ(toy.bucket->moments().size(), 1U);
    EXPECT_EQ(toy.bucket->moments()[0].scalar_type(), at::kBFloat16);
    for (int64_t step = 1; step <= 2; ++step)
      apply_update({toy.bucket.get()}, config, {0.1, step, {}});
    toy.expect_values("W", 1.0 - 0.1 * (1.0 + 1.9), 1e-6);  // rounded only where it is stored
    EXPECT_EQ(toy.bucket->moments()[0][0].item<float>(), 1.8984375F);
    EXPECT_EQ(checkpoint_states(config), (std::vector<std::string>{"param", "momentum"}));
    config.type = OptimizerType::kAdam;
    EXPECT_EQ(checkpoint_states(config),
              (std::vector<std::string>{"param", "exp_avg", "exp_avg_sq"}));
  });
}

std::string error_of(const std::vector<ParameterGroup>& groups) {
  ParameterTable table(1, 0);
  table.add({"model.embed_tokens.weight", {4, 4}, Placement::replicate(), {}});
  table.add({"model.layers.0.mlp.gate_proj.weight", {4, 4}, Placement::replicate(), {}});
  try {
    resolve_groups(groups, {&table});
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Groups, APatternThatFitsNothingIsAnErrorWithNearNames) {
  const std::string error =
      error_of({{.params = {"*embed*"}}, {.params = {"*", "*.gate_pro.weight"}}});
  EXPECT_NE(error.find("optimizer.groups[1].params: '*.gate_pro.weight' matches no parameter"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("names near it: model.layers.*.mlp.gate_proj.weight"), std::string::npos)
      << error;
}

TEST(Groups, SomethingMustBeLeftToTrain) {
  EXPECT_NE(error_of({{.params = {"*"}, .frozen = true}}).find("freezes all 2 parameters"),
            std::string::npos);
  EXPECT_EQ(error_of({{.params = {"*embed*"}}, {.params = {"*.mlp.*"}, .frozen = true}}),
            "no error");
}

}  // namespace
}  // namespace tessera

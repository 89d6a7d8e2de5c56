// Parameters of unusual kind from the first step to the exported file, on two data-parallel ranks.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <mutex>

#include "checkpoint/huggingface/consolidate.h"
#include "optim/grad_norm.h"
#include "optim/optimizer.h"
#include "parallel/executor/bucket_set.h"
#include "parallel/executor/module_stage.h"
#include "parallel/executor/step_executor.h"
#include "parallel/fsdp/initialize.h"
#include "safetensors/reader.h"
#include "support/read_tensors.h"
#include "training/engine/train_state.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

// A module whose loss is the sum of its parameters, so that gradients are 1.
struct Toy : torch::nn::Module {
  virtual at::Tensor loss() = 0;
};

struct ToyRun {
  std::vector<double> losses, norms;  // of every step
  SafetensorsHeader header;           // of the exported file
  std::map<std::string, at::Tensor> weights;
};

ToyRun run_toy(const std::function<std::shared_ptr<Toy>()>& make, const OptimizerConfig& optimizer,
               double lr, int64_t steps) {
  const TemporaryFolder folder;
  ToyRun result;
  std::mutex one_at_a_time;  // modules draw from the process's one generator
  run_thread_ranks(2, [&](Communicator& world) {
    Mesh mesh({1, 2, 1}, world.split(0, world.rank(), "world"));
    std::shared_ptr<Toy> toy;
    {
      std::lock_guard lock(one_at_a_time);
      toy = make();
    }
    ModuleStage stage(
        "toy", toy,
        [toy](const TensorList&, const MicroBatch& batch) {
          return TensorList{toy->loss() * batch.weights.sum()};
        },
        mesh);
    const std::vector<std::string> states = checkpoint_states(optimizer);
    const BucketSet set =
        make_buckets({&stage}, mesh, {.zero = 3, .moments = static_cast<int>(states.size()) - 1});
    const auto buckets = set.pointers();
    for (FlatBucket* bucket : buckets) initialize_weights(*bucket, 1);
    StepExecutor executor({&stage}, buckets, set.of_stage, {});
    const at::Tensor one = at::zeros({1, 1}, at::kLong);
    for (int64_t step = 1; step <= steps; ++step) {
      const at::Tensor loss =
          executor.forward_backward({one, one, at::full({1, 1}, 0.5), {}}, {true, true});
      at::Tensor sums = at::stack(
          {loss.reshape({}), local_squared_grad_norms(buckets, mesh).sum().to(at::kDouble)});
      mesh.world().all_reduce(sums, ReduceOp::kSum).wait();
      if (world.rank() == 0) {
        result.losses.push_back(sums[0].item<double>());
        result.norms.push_back(std::sqrt(sums[1].item<double>()));
      }
      apply_update(buckets, optimizer, {lr, step, {}});
      executor.parameters_changed();
    }
    Manifest manifest;
    manifest.step = steps;
    manifest.states = states;
    manifest.tensors = tensor_infos({&stage});
    manifest.model = {{"model_type", "toy"}};
    manifest.writer = "test";
    CheckpointManager manager(folder / "steps", 0, mesh.world(), [](const std::string&) {});
    manager.save(std::move(manifest), state_pieces(buckets, mesh, states));
  });
  consolidate(folder / "steps" / step_dir_name(steps), folder / "out", {});
  const auto file = folder / "out" / "model.safetensors";
  result.header = read_safetensors_header(File::open(file));
  result.weights = read_tensors(file);
  return result;
}

const TensorEntry& entry(const ToyRun& run, const std::string& name) {
  for (const TensorEntry& candidate : run.header.entries)
    if (candidate.name == name) return candidate;
  throw std::runtime_error("no tensor " + name);
}

struct WithEmpty : Toy {
  explicit WithEmpty(bool with) {
    matrix = register_parameter("matrix", torch::full({4, 4}, 0.5));
    if (!with) return;
    empty = register_parameter("empty", torch::empty({0, 4}));
    frozen = register_parameter("frozen", torch::empty({4, 0}));
    frozen.set_requires_grad(false);  // alone in its bucket
  }
  at::Tensor loss() override {
    return empty.defined() ? matrix.sum() + empty.sum() + frozen.sum() : matrix.sum();
  }
  at::Tensor matrix, empty, frozen;
};

// Known fault P01: NaN from a division by its size, or a hook that failed.
TEST(OddParameters, OneWithoutElementsIsOnlyListed) {
  const auto run = [](bool with) {
    return run_toy([&] { return std::make_shared<WithEmpty>(with); }, {}, 0.1, 3);
  };
  const ToyRun plain = run(false), result = run(true);
  EXPECT_EQ(result.norms, (std::vector<double>{4.0, 4.0, 4.0}));
  EXPECT_EQ(result.norms, plain.norms);
  EXPECT_EQ(result.losses, plain.losses);
  EXPECT_EQ(result.losses[0], 8.0);
  EXPECT_TRUE(at::equal(result.weights.at("matrix"), plain.weights.at("matrix")));
  EXPECT_EQ(entry(result, "empty").shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(entry(result, "empty").begin, entry(result, "empty").end);
  EXPECT_EQ(entry(result, "frozen").shape, (std::vector<int64_t>{4, 0}));
}

struct Scalar : Toy {
  Scalar() { p = register_parameter("p", torch::ones({})); }
  at::Tensor loss() override { return p.clone(); }
  at::Tensor p;
};

// Known fault P02: sharding failed late, or at the first save.
TEST(OddParameters, OneWithoutDimsIsTrainedAndKeepsItsShape) {
  OptimizerConfig sgd;
  sgd.type = OptimizerType::kSgd;
  sgd.weight_decay = 0.0;
  const ToyRun result = run_toy([] { return std::make_shared<Scalar>(); }, sgd, 0.1, 1);
  EXPECT_EQ(result.losses, std::vector<double>{1.0});
  EXPECT_EQ(result.norms, std::vector<double>{1.0});
  EXPECT_TRUE(entry(result, "p").shape.empty());
  EXPECT_EQ(result.weights.at("p").item<float>(), 0.9F);
}

struct WithUnused : Toy {
  explicit WithUnused(bool with) {
    used = register_parameter("used", torch::full({4, 4}, 0.5));
    if (!with) return;
    unused = register_module("unused", torch::nn::Linear(3, 5));
    at::NoGradGuard no_grad;
    unused->weight.fill_(2.0);
    unused->bias.fill_(0.25);
  }
  at::Tensor loss() override { return used.sum(); }
  at::Tensor used;
  torch::nn::Linear unused{nullptr};
};

// Known fault P07: a hang in backward. Decay of matrices is (1 - lr * decay) a step.
TEST(OddParameters, OneThatForwardNeverReadsOnlyDecays) {
  OptimizerConfig adamw;
  adamw.weight_decay = 0.1;
  const auto run = [&](bool with) {
    return run_toy([&] { return std::make_shared<WithUnused>(with); }, adamw, 0.1, 5);
  };
  const ToyRun plain = run(false), result = run(true);
  EXPECT_EQ(result.losses, plain.losses);
  EXPECT_EQ(result.norms, plain.norms);
  EXPECT_TRUE(at::equal(result.weights.at("used"), plain.weights.at("used")));
  const at::Tensor weight = result.weights.at("unused.weight");
  EXPECT_LE((weight - 2.0 * std::pow(0.99, 5)).abs().max().item<double>(), 1e-6);
  EXPECT_TRUE(at::all(result.weights.at("unused.bias") == 0.25).item<bool>());
}

struct Strided : Toy {
  Strided() {
    const at::Tensor matrix = torch::arange(1.0, 7.0).view({2, 3});  // 1 2 3 | 4 5 6
    transposed = register_parameter("transposed", matrix.t());
    sliced = register_parameter("sliced", matrix.slice(1, 1, 3));
    expanded = register_parameter("expanded", torch::arange(1.0, 3.0).view({2, 1}).expand({2, 3}));
  }
  at::Tensor loss() override { return transposed.sum() + sliced.sum() + expanded.sum(); }
  at::Tensor transposed, sliced, expanded;
};

// Known fault T14: the order of the storage was written, not that of the elements.
TEST(OddParameters, OnesWithStridesAreWrittenInTheOrderOfTheirElements) {
  OptimizerConfig sgd;
  sgd.type = OptimizerType::kSgd;
  sgd.weight_decay = 0.0;
  const ToyRun result = run_toy([] { return std::make_shared<Strided>(); }, sgd, 0.0, 1);
  const auto expect = [&](const std::string& name, const std::vector<int64_t>& shape,
                          const std::vector<float>& elements) {
    EXPECT_EQ(entry(result, name).shape, shape) << name;
    EXPECT_TRUE(at::equal(result.weights.at(name).flatten(), at::tensor(elements))) << name;
  };
  expect("transposed", {3, 2}, {1, 4, 2, 5, 3, 6});
  expect("sliced", {2, 2}, {2, 3, 5, 6});
  expect("expanded", {2, 3}, {1, 1, 1, 2, 2, 2});
}

}  // namespace
}  // namespace tessera

// The engine's memory as the system counts it: anonymous memory of this process (RssAnon of
// /proc/self/status) before the buckets are made and after a step, beside the arithmetic of
// memory_model.h. The ledger is not asked.
//
// So that the C library's heap blurs nothing, every block above 64 KiB is a mapping of its own,
// which appears when it is allocated and is gone when it is freed, and a small case runs first:
// what threads, autograd and the communicators allocate once is there before the first measurement.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/nn/modules/linear.h>

#include "base/process/process_memory.h"
#include "parallel/executor/memory_model.h"
#include "parallel/executor/module_stage.h"
#include "parallel/executor/step_executor.h"
#include "support/mpi_test.h"

namespace tessera {
namespace {

constexpr int kStages = 12;

// kStages square matrices, the last one with a loss.
std::vector<std::unique_ptr<Stage>> linear_chain(int64_t width, const Mesh& mesh) {
  std::vector<std::unique_ptr<Stage>> stages;
  for (int i = 0; i < kStages; ++i) {
    const torch::nn::Linear linear(width, width);
    const auto forward = [linear, width, i](const TensorList& inputs, const MicroBatch& batch) {
      torch::nn::Linear module = linear;
      const at::Tensor x =
          inputs.empty() ? at::ones({2, width}, module->weight.options()) : inputs[0];
      const at::Tensor y = module->forward(x);
      return TensorList{i + 1 < kStages ? y : (y * batch.weights).sum().to(at::kFloat)};
    };
    ModuleStageOptions options;
    options.prefix = "layer" + std::to_string(i);
    stages.push_back(
        std::make_unique<ModuleStage>(options.prefix, linear.ptr(), forward, mesh, options));
  }
  return stages;
}

struct Measured {
  int64_t grown;
  int64_t predicted;
};

Measured one_step(int64_t width, const ShardingPolicy& policy, Mesh& mesh) {
  malloc_trim(0);
  const int64_t before = anonymous_bytes();
  const auto owned = linear_chain(width, mesh);
  std::vector<Stage*> stages;
  for (const auto& stage : owned) stages.push_back(stage.get());
  const ExecutorOptions options;
  const BucketPlan plan = plan_buckets(stages, policy);
  const BucketSet set = make_buckets(plan, mesh);
  StepExecutor executor(stages, set.pointers(), set.of_stage, options);
  MicroBatch batch;
  batch.weights = at::ones({2, 1}, policy.params);
  executor.forward_backward(batch, {});
  malloc_trim(0);
  const int64_t grown = anonymous_bytes() - before;
  mesh.world().barrier().wait();
  return {grown,
          predict_memory(chain_size(stages, plan, options), mesh.shape(), policy, options).total()};
}

TEST(MeasuredMemory, IsWhatTheParameterCountsSay) {
  mallopt(M_MMAP_THRESHOLD, 64 * 1024);
  at::set_num_threads(1);
  auto world = make_mpi_world(testing::mpi_runtime());
  const int ranks = world->size();
  Mesh mesh({1, ranks, 1}, std::move(world));
  one_step(128, {.zero = 3}, mesh);
  one_step(128, {.zero = 1, .params = at::kBFloat16}, mesh);
  for (const at::ScalarType params : {at::kFloat, at::kBFloat16}) {
    for (int zero = 0; zero <= 3; ++zero) {
      const Measured measured = one_step(1280, {.zero = zero, .params = params}, mesh);
      if (mesh.world().rank() == 0)
        std::printf("%d ranks, zero %d, %s: %.1f MB grown, %.1f MB predicted\n", ranks, zero,
                    c10::toString(params), static_cast<double>(measured.grown) / 1e6,
                    static_cast<double>(measured.predicted) / 1e6);
      EXPECT_NEAR(static_cast<double>(measured.grown), static_cast<double>(measured.predicted),
                  0.03 * static_cast<double>(measured.predicted))
          << "zero " << zero << ", " << c10::toString(params);
    }
  }
}

}  // namespace
}  // namespace tessera

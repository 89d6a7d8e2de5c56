#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/executor/bucket_set.h"
#include "parallel/executor/step_executor.h"
#include "parallel/fsdp/initialize.h"

namespace tessera {

using Stages = std::vector<std::unique_ptr<Stage>>;

inline std::vector<Stage*> pointers(const Stages& stages) {
  std::vector<Stage*> result;
  for (const auto& stage : stages) result.push_back(stage.get());
  return result;
}

// What a run of a chain leaves behind.
struct ChainResult {
  std::vector<double> losses;                               // of every step, over all ranks
  std::map<std::string, std::map<int64_t, double>> values;  // parameter -> element -> value
};

struct ChainSetup {
  explicit ChainSetup(MeshShape shape) : mesh(shape) {}

  MeshShape mesh;
  ShardingPolicy policy{.zero = 3, .moments = 0};
  ExecutorOptions executor;
  int steps = 3;
  int micro_batches = 1;
  double lr = 0.1;
};

// Plain gradient descent on thread ranks. make_stages(mesh) builds the chain of a rank;
// make_batch(dp, dp_rank, micro_batch) gives its data.
inline ChainResult run_chain(
    const ChainSetup& setup, const std::function<Stages(Mesh&)>& make_stages,
    const std::function<MicroBatch(int dp, int dp_rank, int micro_batch)>& make_batch) {
  ChainResult result;
  result.losses.assign(static_cast<size_t>(setup.steps), 0.0);
  std::mutex mutex;
  run_thread_ranks(setup.mesh.world(), [&](Communicator& world) {
    Mesh mesh(setup.mesh, world.split(0, world.rank(), "world"));
    const Stages stages = make_stages(mesh);
    const BucketSet set = make_buckets(pointers(stages), mesh, setup.policy);
    const auto buckets = set.pointers();
    for (FlatBucket* bucket : buckets) initialize_weights(*bucket, 7);
    StepExecutor executor(pointers(stages), buckets, set.of_stage, setup.executor);
    for (int step = 0; step < setup.steps; ++step) {
      double loss = 0.0;
      for (int i = 0; i < setup.micro_batches; ++i)
        loss += executor
                    .forward_backward(make_batch(mesh.dp(), mesh.dp_rank(), i),
                                      {i == 0, i + 1 == setup.micro_batches})
                    .item<double>();
      for (FlatBucket* bucket : buckets)
        if (bucket->trainable()) at::Tensor(bucket->master()).sub_(bucket->grad(), setup.lr);
      executor.parameters_changed();
      std::lock_guard lock(mutex);
      if (mesh.tp_rank() == 0) result.losses[static_cast<size_t>(step)] += loss;
    }
    std::lock_guard lock(mutex);
    for (FlatBucket* bucket : buckets)
      for (const Segment& segment : bucket->segments())
        for (int64_t i = 0; i < segment.slice.numel(); ++i)
          result.values[segment.parameter->spec.name][segment.slice.begin + i] =
              bucket->master()[segment.shard_offset + i].item<double>();
  });
  return result;
}

inline void expect_close(const ChainResult& result, const ChainResult& wanted, double tolerance) {
  for (size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(result.losses[i], wanted.losses[i], tolerance * std::abs(wanted.losses[i]));
  ASSERT_EQ(result.values.size(), wanted.values.size());
  for (const auto& [name, elements] : wanted.values) {
    ASSERT_EQ(result.values.at(name).size(), elements.size()) << name;
    for (const auto& [index, value] : elements)
      EXPECT_NEAR(result.values.at(name).at(index), value, tolerance) << name << " " << index;
  }
}

}  // namespace tessera

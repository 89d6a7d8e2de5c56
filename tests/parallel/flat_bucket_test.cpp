#include "parallel/fsdp/flat_bucket.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/fsdp/initialize.h"
#include "parallel/one_bucket.h"

namespace tessera {
namespace {

// Odd sizes: one element, a size that no group divides, a scalar, a pack.
void declare(ParameterTable& table) {
  const auto normal = Initializer::normal(1.0);
  table.add_pack(
      {{"a", {8, 5}, Placement::shard(0), normal}, {"b", {4, 5}, Placement::shard(0), normal}});
  table.add({"c", {1}, Placement::replicate(), Initializer::constant(3.0), false});
  table.add({"d", {7, 12}, Placement::shard(1), normal});
  table.add({"e", {}, Placement::replicate(), Initializer::constant(2.0), false});
}

struct Shape {
  int dp_shard;
  int tp;
  int dp_replicate = 1;
};

class BucketOnMesh : public testing::TestWithParam<Shape> {
 protected:
  void on_ranks(const std::function<void(Mesh&)>& body) {
    const auto [dp, tp, replicate] = GetParam();
    run_thread_ranks(replicate * dp * tp, [&](Communicator& world) {
      Mesh mesh({replicate, dp, tp}, world.split(0, world.rank(), "world"));
      body(mesh);
    });
  }
};

TEST_P(BucketOnMesh, SegmentsCoverEveryElementOncePerTpRank) {
  std::mutex mutex;
  std::map<std::string, int64_t> held;
  const auto [dp, tp, replicate] = GetParam();
  on_ranks([&](Mesh& mesh) {
    ParameterTable table(mesh.tp(), mesh.tp_rank());
    declare(table);
    FlatBucket bucket = one_bucket(table, mesh);
    EXPECT_EQ(bucket.numel() % (64 * mesh.dp_shard()), 0);
    std::lock_guard lock(mutex);
    for (const auto& segment : bucket.segments())
      held[segment.parameter->spec.name] += segment.slice.numel();
  });
  EXPECT_EQ(held["a"], 40 * replicate);
  EXPECT_EQ(held["b"], 20 * replicate);
  EXPECT_EQ(held["c"], tp * replicate);
  EXPECT_EQ(held["d"], 84 * replicate);
  EXPECT_EQ(held["e"], tp * replicate);
}

TEST_P(BucketOnMesh, GathersTheSameWeightsEverywhere) {
  // The reference: the whole tensors, drawn on one rank.
  std::map<std::string, at::Tensor> whole;
  run_thread_ranks(1, [&](Communicator& world) {
    Mesh mesh({1, 1, 1}, world.split(0, 0, "world"));
    ParameterTable table(1, 0);
    declare(table);
    FlatBucket bucket = one_bucket(table, mesh);
    initialize_weights(bucket, 7);
    for (const auto& parameter : table.parameters())
      whole[parameter.spec.name] = parameter.value.detach().clone();
  });
  on_ranks([&](Mesh& mesh) {
    ParameterTable table(mesh.tp(), mesh.tp_rank());
    declare(table);
    FlatBucket bucket = one_bucket(table, mesh);
    initialize_weights(bucket, 7);
    at::Tensor slot = at::zeros({bucket.numel()}, at::kFloat);
    bucket.start_gather(slot.data_ptr());
    bucket.wait_gather();
    for (const auto& parameter : table.parameters()) {
      at::Tensor wanted = whole[parameter.spec.name];
      for (size_t dim = 0; dim < parameter.box.shape.size(); ++dim)
        wanted = wanted.narrow(static_cast<int64_t>(dim), parameter.box.offset[dim],
                               parameter.box.shape[dim]);
      EXPECT_TRUE(at::equal(parameter.value.detach(), wanted)) << parameter.spec.name;
    }
    bucket.release(nullptr);
  });
}

// Three micro-batches whose gradients are 1 + rank, at every stage of ZeRO and in every dtype.
TEST_P(BucketOnMesh, ReducesAndAccumulates) {
  for (auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (auto reduce : {GradReduce::kWide, GradReduce::kBf16, GradReduce::kBf16Wire}) {
      if (dtype == at::kDouble && reduce != GradReduce::kWide) continue;
      for (int zero = 0; zero <= 3; ++zero) {
        for (bool per_micro_batch : {true, false}) {
          SCOPED_TRACE(std::string(c10::toString(dtype)) + " zero " + std::to_string(zero));
          on_ranks([&](Mesh& mesh) {
            ParameterTable table(mesh.tp(), mesh.tp_rank());
            declare(table);
            ShardingPolicy policy{.zero = zero, .reduce_per_micro_batch = per_micro_batch};
            policy.params = dtype;
            policy.reduce = reduce;
            FlatBucket bucket = one_bucket(table, mesh, {.policy = policy, .params = dtype});
            BucketGradient& gradient = bucket.gradient();
            at::Tensor slot = at::full({bucket.numel()}, 99.0, dtype);
            at::Tensor staging = at::zeros({gradient.staging_numel()}, bucket.master().options());
            at::Tensor wire = at::zeros({gradient.wire_bytes()}, at::kByte);
            for (int micro = 0; micro < 3; ++micro) {
              gradient.begin(slot.data_ptr(), micro == 0);
              for (const auto& parameter : table.parameters())
                at::Tensor(parameter.grad).add_(1.0 + mesh.dp_rank());
              gradient.start_reduce({.first = micro == 0, .last = micro == 2, .single = false},
                                    {.staging = staging, .wire = wire, .shard_slot = {}});
              while (gradient.advance()) {
              }
            }
            const double wanted = 3.0 * mesh.dp() * (mesh.dp() + 1) / 2;
            double held = 0.0;
            EXPECT_EQ(bucket.grad().numel(), zero == 0 ? bucket.numel() : bucket.shard_numel());
            for (const auto& segment : bucket.update_segments()) {
              const at::Tensor part =
                  bucket.grad().narrow(0, segment.shard_offset, segment.slice.numel());
              EXPECT_TRUE(at::all(part == wanted).item<bool>());
              held += part.sum().item<double>();
            }
            EXPECT_EQ(bucket.grad().sum().item<double>(), held);  // padding stays zero
          });
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, BucketOnMesh,
                         testing::Values(Shape{1, 1}, Shape{2, 1}, Shape{3, 1}, Shape{4, 1},
                                         Shape{1, 2}, Shape{2, 2}, Shape{1, 1, 2}, Shape{2, 1, 2},
                                         Shape{2, 2, 2}, Shape{3, 1, 2}));

TEST(FlatBucket, AutogradAddsIntoTheSlot) {
  run_thread_ranks(1, [](Communicator& world) {
    Mesh mesh({1, 1, 1}, world.split(0, 0, "world"));
    ParameterTable table(1, 0);
    Parameter& w = table.add({"w", {3}, Placement::replicate(), Initializer::constant(2.0)});
    FlatBucket bucket = one_bucket(table, mesh);
    initialize_weights(bucket, 1);
    bucket.gradient().begin(nullptr, true);
    (w.value * w.value).sum().backward();
    EXPECT_TRUE(at::all(bucket.grad().narrow(0, 0, 3) == 4.0).item<bool>());
  });
}

}  // namespace
}  // namespace tessera

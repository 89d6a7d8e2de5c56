#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "optim/grad_norm.h"
#include "optim/lr_schedule.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/one_bucket.h"

namespace tessera {
namespace {

TEST(LrSchedule, CosineHasTheKnownValues) {
  const ScheduleConfig cosine{ScheduleType::kCosine, 10, 0.1};
  const auto lr = [&](int64_t step) { return learning_rate(cosine, 1e-3, 100, step); };
  EXPECT_DOUBLE_EQ(lr(9), 9e-4);
  EXPECT_DOUBLE_EQ(lr(10), 1e-3);
  EXPECT_NEAR(lr(50), 6.281417e-4, 5e-11);
  EXPECT_NEAR(lr(51), 6.126279e-4, 5e-11);
  EXPECT_EQ(lr(100), 0.1 * 1e-3);
  EXPECT_EQ(lr(145), 0.1 * 1e-3);  // clamped after the planned end
}

TEST(LrSchedule, LinearAndConstant) {
  const ScheduleConfig linear{ScheduleType::kLinear, 10, 0.0};
  EXPECT_DOUBLE_EQ(learning_rate(linear, 1.0, 110, 60), 0.5);
  EXPECT_EQ(learning_rate(linear, 1.0, 110, 110), 0.0);
  const ScheduleConfig constant{ScheduleType::kConstant, 4, 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(constant, 1.0, 10, 1), 0.25);
  EXPECT_EQ(learning_rate(constant, 1.0, 10, 10), 1.0);
}

TEST(LrSchedule, NoWarmupAndWarmupToTheEndGiveNoNan) {
  for (auto type : {ScheduleType::kConstant, ScheduleType::kLinear, ScheduleType::kCosine}) {
    for (int64_t warmup : {0, 1, 20}) {
      for (int64_t step = 1; step <= 25; ++step) {
        const double lr = learning_rate({type, warmup, 0.1}, 1e-3, 20, step);
        EXPECT_TRUE(std::isfinite(lr) && lr >= 0.0 && lr <= 1e-3) << warmup << " " << step;
      }
      EXPECT_EQ(learning_rate({type, 20, 0.1}, 1e-3, 20, 20), 1e-3);
    }
  }
}

TEST(GradNorm, CountsAReplicatedParameterOnceAndPaddingNever) {
  // W [8, 4] sharded over tp and b [4] replicated, all gradients 1: sqrt(32 + 4) = 6 on every mesh.
  for (const auto& [dp, tp] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 4}, {3, 1}}) {
    run_thread_ranks(dp * tp, [dp = dp, tp = tp](Communicator& world) {
      Mesh mesh({1, dp, tp}, world.split(0, world.rank(), "world"));
      ParameterTable table(tp, mesh.tp_rank());
      table.add({"W", {8, 4}, Placement::shard(0), Initializer::constant(0.0)});
      table.add({"b", {4}, Placement::replicate(), Initializer::constant(0.0)});
      FlatBucket bucket = one_bucket(table, mesh);
      for (const auto& segment : bucket.segments())
        bucket.grad().narrow(0, segment.shard_offset, segment.slice.numel()).fill_(1.0);
      at::Tensor sum =
          at::full({1}, local_squared_grad_norms({&bucket}, mesh).item<double>(), at::kDouble);
      mesh.world().all_reduce(sum, ReduceOp::kSum).wait();
      EXPECT_EQ(std::sqrt(sum.item<double>()), 6.0);
    });
  }
}

TEST(GradNorm, ClipFactor) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);  // off
}

}  // namespace
}  // namespace tessera

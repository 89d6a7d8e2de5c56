#include "training/engine/memory_advice.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr int64_t kP = int64_t{1} << 20;  // parameters of each of ten stages

MemoryCase ten_stages(int zero, MeshShape mesh) {
  MemoryCase c;
  for (int i = 0; i < 10; ++i) {
    c.chain.buckets.push_back({kP, at::kFloat, true, 1});
    c.chain.stages.push_back({{i}, true});
  }
  c.mesh = mesh;
  c.policy.zero = zero;
  c.micro_batch_size = 8;
  return c;
}

int64_t engine(const MemoryCase& c) {
  return predict_memory(c.chain, c.mesh, c.policy, c.options).total();
}

using Settings = std::vector<std::string>;

std::vector<Settings> settings_of(const MemoryAdvices& advices) {
  std::vector<Settings> all;
  for (const MemoryAdvice& advice : advices.fitting) all.push_back(advice.settings);
  return all;
}

TEST(MemoryAdvice, NamesTheThreeCheapestThatFit) {
  const MemoryCase now = ten_stages(0, {2, 4, 1});  // 160 P of states
  // Room for 8P + 8P/4 = 100 P of zero 1: that, a doubled dp_shard never (zero 0 is full anyway).
  const MemoryAdvices advices = advise_memory(now, 105 * kP, 0);
  EXPECT_EQ(
      settings_of(advices),
      (std::vector<Settings>{{"parallel.zero: 1"}, {"parallel.zero: 2"}, {"parallel.zero: 3"}}));
  EXPECT_LE(advices.fitting[0].needs, 105 * kP);
  EXPECT_GT(advices.fitting[0].needs, 95 * kP);
}

TEST(MemoryAdvice, ActivationsShrinkWithTheMicroBatchAlone) {
  const MemoryCase now = ten_stages(3, {1, 4, 1});
  const int64_t states = engine(now), activations = 400 * kP;
  const MemoryAdvices advices = advise_memory(now, states + 210 * kP, activations);
  ASSERT_FALSE(advices.fitting.empty());
  EXPECT_EQ(advices.fitting[0].settings, Settings{"training.micro_batch_size: 4"});
  EXPECT_EQ(advices.fitting[0].needs, states + activations / 2);
  // Nothing that fits alone is named again beside another setting.
  for (size_t i = 1; i < advices.fitting.size(); ++i)
    for (const std::string& setting : advices.fitting[i].settings)
      EXPECT_NE(setting, "training.micro_batch_size: 4");
  EXPECT_EQ(advices.unknown, (Settings{"memory.recompute: selective", "memory.recompute: full"}));
}

TEST(MemoryAdvice, TwoSettingsWhereOneIsNotEnough) {
  const MemoryCase now = ten_stages(1, {2, 4, 1});  // 100 P
  // zero 3 alone takes 40 P and two rings, more shards alone 90 P.
  MemoryCase both = now;
  both.policy.zero = 3;
  both.mesh = {1, 8, 1};
  const MemoryAdvices advices = advise_memory(now, engine(both), 0);
  ASSERT_FALSE(advices.fitting.empty());
  EXPECT_EQ(advices.fitting[0].settings,
            (Settings{"parallel.dp_shard: 8 (dp_replicate: 1)", "parallel.zero: 3"}));
  EXPECT_EQ(advices.fitting[0].needs, engine(both));
}

TEST(MemoryAdvice, OffloadIsTheLastResortAndOnlyWhatIsAllowed) {
  MemoryCase now = ten_stages(3, {1, 2, 1});
  MemoryCase offloaded = now;
  offloaded.policy.offload_optimizer = true;
  now.micro_batch_size = 1;
  const MemoryAdvices advices = advise_memory(now, engine(offloaded), 0);
  ASSERT_FALSE(advices.fitting.empty());
  EXPECT_EQ(advices.fitting[0].settings, Settings{"memory.offload: optimizer"});
  // Gradients that are kept in full are no shards that could leave the device.
  now.policy.reduce_per_micro_batch = false;
  for (const MemoryAdvice& advice : advise_memory(now, int64_t{1} << 40, 0).fitting)
    EXPECT_NE(advice.settings, Settings{"memory.offload: all"});
  MemoryCase on_cpu = now;
  on_cpu.can_offload = false;
  for (const MemoryAdvice& advice : advise_memory(on_cpu, engine(offloaded), 0).fitting)
    for (const std::string& setting : advice.settings)
      EXPECT_EQ(setting.find("memory.offload"), std::string::npos) << setting;
}

TEST(MemoryAdvice, WhereNoneFitsItSaysWhatComesClosest) {
  MemoryCase now = ten_stages(3, {1, 2, 1});
  now.options.recompute_every = 1;
  const MemoryAdvices advices = advise_memory(now, kP, 0);
  EXPECT_TRUE(advices.fitting.empty());
  EXPECT_FALSE(advices.closest.settings.empty());
  EXPECT_GT(advices.closest.needs, kP);
  EXPECT_LT(advices.closest.needs, engine(now));
  EXPECT_TRUE(advices.unknown.empty());
}

}  // namespace
}  // namespace tessera

#include "parallel/fsdp/bucket_placement.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

constexpr MeshShape kOneShard{.dp_replicate = 2, .dp_shard = 1, .tp = 1};
constexpr MeshShape kShards{.dp_replicate = 1, .dp_shard = 4, .tp = 1};
constexpr MeshShape kBoth{.dp_replicate = 2, .dp_shard = 4, .tp = 1};

BucketPlacement placement(const ShardingPolicy& policy, const MeshShape& mesh,
                          at::ScalarType params = at::kFloat) {
  return {policy, mesh, {.params = params}};
}

// full_copy() at zero 0 to 3.
std::vector<FullCopy> full_copies(ShardingPolicy policy, const MeshShape& mesh,
                                  at::ScalarType params) {
  std::vector<FullCopy> found;
  for (policy.zero = 0; policy.zero <= 3; ++policy.zero)
    found.push_back(placement(policy, mesh, params).full_copy());
  return found;
}

TEST(BucketPlacement, FullCopyByZeroDtypeAndShards) {
  using enum FullCopy;
  const std::vector<FullCopy> resident(4, kResident);
  const std::vector<FullCopy> by_zero = {kKept, kKept, kKept, kGathered};
  for (const at::ScalarType wide : {at::kFloat, at::kDouble}) {
    EXPECT_EQ(full_copies({}, kOneShard, wide), resident);
    EXPECT_EQ(full_copies({}, kShards, wide),
              (std::vector<FullCopy>{kResident, kKept, kKept, kGathered}));
    // A master in the host's memory cannot be read by stages.
    EXPECT_EQ(full_copies({.offload_optimizer = true}, kOneShard, wide), by_zero);
  }
  for (const at::ScalarType half : {at::kBFloat16, at::kHalf}) {
    EXPECT_EQ(full_copies({}, kOneShard, half), by_zero);
    EXPECT_EQ(full_copies({}, kShards, half), by_zero);
  }
}

TEST(BucketPlacement, TheMasterIsPartOfAKeptCopyOfItsDtypeOnTheDevice) {
  EXPECT_TRUE(placement({.zero = 1}, kShards).master_in_copy());
  EXPECT_TRUE(placement({.zero = 2}, kShards, at::kDouble).master_in_copy());
  EXPECT_FALSE(placement({.zero = 1}, kShards, at::kBFloat16).master_in_copy());
  EXPECT_FALSE(placement({.zero = 1, .offload_optimizer = true}, kShards).master_in_copy());
  EXPECT_FALSE(placement({.zero = 0}, kShards).master_in_copy());  // it is the copy itself
  EXPECT_FALSE(placement({.zero = 3}, kShards).master_in_copy());
}

TEST(BucketPlacement, PlacesOfStates) {
  const BucketPlacement plain = placement({}, kShards);
  EXPECT_EQ(plain.master_place(), StatePlace::kDevice);
  EXPECT_EQ(plain.moments_place(), StatePlace::kDevice);
  EXPECT_EQ(plain.gradient_place(), StatePlace::kDevice);
  const BucketPlacement disk = placement({.moments_on_disk = true}, kShards);
  EXPECT_EQ(disk.master_place(), StatePlace::kDevice);
  EXPECT_EQ(disk.moments_place(), StatePlace::kFile);
  const BucketPlacement optimizer = placement({.offload_optimizer = true}, kShards);
  EXPECT_EQ(optimizer.master_place(), StatePlace::kPinnedHost);
  EXPECT_EQ(optimizer.moments_place(), StatePlace::kPinnedHost);
  EXPECT_EQ(optimizer.gradient_place(), StatePlace::kDevice);
  // Gradients that are kept in full stay on the device, whatever is offloaded.
  ShardingPolicy all{.offload_optimizer = true, .offload_gradients = true};
  for (all.zero = 0; all.zero <= 3; ++all.zero)
    EXPECT_EQ(placement(all, kShards).gradient_place(),
              all.zero <= 1 ? StatePlace::kDevice : StatePlace::kPinnedHost);
  all.zero = 3;
  all.reduce_per_micro_batch = false;
  EXPECT_EQ(placement(all, kShards).gradient_place(), StatePlace::kDevice);
}

TEST(BucketPlacement, PlacesAreClassesOfALedger) {
  for (const MemoryClass own : {MemoryClass::kMaster, MemoryClass::kMoments}) {
    EXPECT_EQ(class_of(StatePlace::kDevice, own), own);
    EXPECT_EQ(class_of(StatePlace::kPinnedHost, own), MemoryClass::kOffloadHost);
    EXPECT_EQ(class_of(StatePlace::kFile, own), MemoryClass::kOffloadFile);
  }
}

TEST(BucketPlacement, DtypesOfStates) {
  const ShardingPolicy policy{.moments = 1, .moment_dtype = at::kBFloat16};
  for (const at::ScalarType params : {at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_EQ(placement(policy, kShards, params).wide(), at::kFloat);
    EXPECT_EQ(placement(policy, kShards, params).moment_dtype(), at::kBFloat16);
  }
  EXPECT_EQ(placement(policy, kShards, at::kDouble).wide(), at::kDouble);
  EXPECT_EQ(placement(policy, kShards, at::kDouble).moment_dtype(), at::kDouble);
  EXPECT_EQ(placement(policy, kShards).moments(), 1);
}

TEST(BucketPlacement, BackwardAddsDirectlyWhereNothingLiesBetween) {
  EXPECT_TRUE(placement({.zero = 0}, kShards).adds_directly());
  EXPECT_TRUE(placement({.zero = 1}, kShards).adds_directly());
  EXPECT_FALSE(placement({.zero = 2}, kShards).adds_directly());
  EXPECT_TRUE(placement({.zero = 3, .reduce_per_micro_batch = false}, kShards).adds_directly());
  EXPECT_TRUE(placement({.zero = 3}, kOneShard).adds_directly());
  EXPECT_FALSE(placement({.zero = 3, .reduce = GradReduce::kBf16}, kOneShard).adds_directly());
  EXPECT_FALSE(placement({.zero = 0}, kShards, at::kBFloat16).adds_directly());
  EXPECT_FALSE(
      placement({.zero = 3, .offload_optimizer = true, .offload_gradients = true}, kOneShard)
          .adds_directly());
  EXPECT_FALSE(BucketPlacement({.zero = 0}, kShards, {.uses = 2}).adds_directly());
}

TEST(BucketPlacement, UsesOfATiedBucketAreReducedEachOrAddedUp) {
  const BucketPlacement once({.zero = 1}, kShards, {.uses = 1});
  EXPECT_FALSE(once.reduces_each_use(/*single=*/true));
  EXPECT_FALSE(once.adds_reductions());
  const BucketPlacement tied({.zero = 1}, kShards, {.uses = 2});
  EXPECT_TRUE(tied.reduces_each_use(/*single=*/true));
  EXPECT_FALSE(tied.reduces_each_use(/*single=*/false));
  EXPECT_TRUE(tied.adds_reductions());
  const BucketPlacement shards({.zero = 2}, kShards, {.uses = 1});
  EXPECT_TRUE(shards.reduces_each_use(/*single=*/false));
  EXPECT_TRUE(shards.adds_reductions());
}

TEST(BucketPlacement, OperationsOfALastReduction) {
  EXPECT_EQ(placement({.zero = 3}, kShards).reduce_operations(), 1);
  EXPECT_EQ(placement({.zero = 3}, kBoth).reduce_operations(), 2);
  EXPECT_EQ(placement({.zero = 0}, kShards).reduce_operations(), 2);
  EXPECT_EQ(placement({.zero = 0}, kBoth).reduce_operations(), 3);
  EXPECT_EQ(placement({.zero = 0}, kOneShard).reduce_operations(), 2);
  EXPECT_FALSE(placement({.zero = 0}, kOneShard).gathers_gradient());
}

}  // namespace
}  // namespace tessera

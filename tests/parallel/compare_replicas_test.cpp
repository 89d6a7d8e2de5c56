#include "parallel/fsdp/compare_replicas.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/fsdp/initialize.h"
#include "parallel/one_bucket.h"

namespace tessera {
namespace {

using Poke = std::function<void(FlatBucket& bucket)>;

// A bucket on every rank of a mesh; rank `poked` of the world changes something. The error that
// every rank gets, or nothing.
std::vector<std::string> errors(MeshShape shape, const ShardingPolicy& policy, int poked,
                                const Poke& poke) {
  std::vector<std::string> result(static_cast<size_t>(shape.world()));
  run_thread_ranks(shape.world(), [&](Communicator& world) {
    const int rank = world.rank();
    Mesh mesh(shape, world.split(0, rank, "world"));
    ParameterTable table(mesh.tp(), mesh.tp_rank());
    const auto normal = Initializer::normal(1.0);
    table.add({"split", {8, 20}, Placement::shard(0), normal});
    table.add({"copies", {4, 10}, Placement::shard(0, mesh.tp() == 4 ? 2 : 1), normal});
    table.add({"whole", {300}, Placement::replicate(), normal});
    BucketOptions options;
    options.policy = policy;
    options.params = policy.params;
    FlatBucket bucket = one_bucket(table, mesh, options);
    initialize_weights(bucket, 7);
    if (bucket.placement().full_copy() == FullCopy::kKept) {
      bucket.start_gather(nullptr);
      bucket.wait_gather();
    }
    if (rank == poked) poke(bucket);
    try {
      compare_replicas({&bucket}, mesh, 7);
    } catch (const Error& error) {
      result[static_cast<size_t>(rank)] = error.what();
    }
  });
  return result;
}

// The smallest change of one element of a parameter on this rank.
void change(const at::Tensor& state, const std::vector<Segment>& segments, const char* name) {
  for (const Segment& segment : segments) {
    if (segment.parameter->spec.name != name) continue;
    at::Tensor element = state.narrow(0, segment.shard_offset, 1).view(at::kByte);
    element[0] = element[0].bitwise_xor(1);
    return;
  }
  FAIL() << name << " has no part here";
}

void expect_error(const std::vector<std::string>& found, const std::vector<std::string>& parts) {
  for (const std::string& error : found)
    for (const std::string& part : parts)
      EXPECT_NE(error.find(part), std::string::npos) << part << " in: " << error;
}

void change_weights(FlatBucket& bucket) {
  change(bucket.master(), bucket.segments(), "whole");
}
void change_gradient(FlatBucket& bucket) {
  change(bucket.grad(), bucket.segments(), "whole");
}
void change_split(FlatBucket& bucket) {
  change(bucket.master(), bucket.segments(), "split");
}
void change_copy(FlatBucket& bucket) {
  change(bucket.full(), bucket.full_segments(), "whole");
}

TEST(CompareReplicas, FindsNothingWhereNothingDiffers) {
  for (int zero = 0; zero <= 3; ++zero)
    for (const at::ScalarType params : {at::kFloat, at::kBFloat16})
      for (const auto& error :
           errors({2, 2, 2}, {.zero = zero, .params = params}, -1, change_weights))
        EXPECT_EQ(error, "");
}

TEST(CompareReplicas, NamesOnePokedReplicaOnEachAxis) {
  expect_error(errors({1, 1, 2}, {}, 1, change_weights),
               {"step 7", "whole (weights)", "over tp", "ranks 0 and 1"});
  expect_error(errors({1, 1, 2}, {}, 1, change_gradient), {"whole (gradient)", "over tp"});
  expect_error(errors({3, 1, 1}, {}, 2, change_split),
               {"step 7", "split (weights)", "over dp_replicate", "ranks 0 and 2"});
  expect_error(errors({2, 1, 1}, {}, 0, change_gradient), {"whole (gradient)", "dp_replicate"});
  for (int zero = 0; zero <= 2; ++zero)
    for (const at::ScalarType params : {at::kFloat, at::kBFloat16})
      expect_error(errors({1, 2, 1}, {.zero = zero, .params = params}, 1, change_copy),
                   {"step 7", "whole (full copy", "over dp_shard", "ranks 0 and 1"});
  expect_error(errors({1, 2, 1}, {.zero = 0}, 1, change_gradient),
               {"whole (gradient)", "over dp_shard"});
}

void change_copies(FlatBucket& bucket) {
  change(bucket.grad(), bucket.segments(), "copies");
}

// Ranks 2 and 3 hold the second part; the first part's ranks have nothing to tell.
TEST(CompareReplicas, ComparesTheRanksThatHoldTheSamePart) {
  const auto found = errors({1, 1, 4}, {}, 3, change_copies);
  expect_error({found[2], found[3]}, {"step 7", "copies (gradient)", "over tp", "ranks 2 and 3"});
  EXPECT_EQ(found[0] + found[1], "");
}

TEST(CompareReplicas, WhatTensorParallelismSplitsMayDiffer) {
  for (const auto& error : errors({1, 1, 2}, {}, 1, change_split)) EXPECT_EQ(error, "");
}

// Only the ranks of the group that differs hear of it; the world's numbers are named.
TEST(CompareReplicas, NamesRanksOfTheWorld) {
  const auto found = errors({2, 1, 2}, {}, 3, change_split);
  for (const size_t rank : {1, 3})
    EXPECT_NE(found[rank].find("ranks 1 and 3"), std::string::npos) << found[rank];
  for (const size_t rank : {0, 2}) EXPECT_EQ(found[rank], "");
}

}  // namespace
}  // namespace tessera

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/executor/stage.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// The buckets of a chain of stages, and which of them each stage reads.
struct BucketSet {
  std::unique_ptr<OffloadStore> offload;  // null: everything lies on the device
  std::vector<std::unique_ptr<FlatBucket>> buckets;
  std::vector<std::vector<int>> of_stage;

  std::vector<FlatBucket*> pointers() const;
};

// What make_buckets() is to make. It follows from the parameter tables and the policy alone, and
// making it allocates nothing.
struct BucketPlan {
  struct Bucket {
    std::string name;
    std::vector<ParameterPack*> packs;
    BucketOptions options;
  };
  std::vector<Bucket> buckets;
  std::vector<std::vector<int>> of_stage;
};

// A stage's parameters go into one bucket, except those that differ: frozen ones, ones kept in fp32
// while the others are halves, and ones that another stage borrows have buckets of their own. A
// borrowed parameter's bucket is listed by every stage that reads it. Error if the parts of a pack
// differ, since one matrix product serves them all.
BucketPlan plan_buckets(const std::vector<Stage*>& stages, const ShardingPolicy& policy);

// Bytes of a store for the moments of all of a rank's buckets.
int64_t moment_store_bytes(const BucketPlan& plan, int dp_shard);

// Allocates the buckets. `moments`: their store where the policy has moments on disk, else null.
BucketSet make_buckets(const BucketPlan& plan, Mesh& mesh, MomentStore* moments = nullptr);
BucketSet make_buckets(const std::vector<Stage*>& stages, Mesh& mesh, const ShardingPolicy& policy);

}  // namespace tessera

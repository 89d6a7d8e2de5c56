#include "parallel/executor/bucket_set.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace tessera {
namespace {

// What the packs of one bucket have in common; packs that differ in any of it need other buckets.
struct Kind {
  const Parameter* borrowed = nullptr;
  bool trainable = true;
  bool fp32 = false;
  bool operator==(const Kind&) const = default;
};

void check_pack(const ParameterPack& pack, const std::map<const Parameter*, int>& borrowers) {
  const Parameter& first = *pack.parts[0];
  for (const Parameter* part : pack.parts) {
    if (part->spec.trainable != first.spec.trainable)
      fail_user("parameter",
                "{} is {} and {} is {}; one matrix product serves both, so freeze both or neither",
                first.spec.name, first.spec.trainable ? "trained" : "frozen", part->spec.name,
                part->spec.trainable ? "trained" : "frozen");
    if (part->spec.keep_fp32 != first.spec.keep_fp32)
      fail("parameter",
           "only one of {} and {} is kept in fp32; one matrix product serves both, so keep both or "
           "neither",
           first.spec.name, part->spec.name);
    if (pack.parts.size() > 1 && borrowers.contains(part))
      fail("parameter", "{} is part of a pack and cannot be borrowed", part->spec.name);
  }
}

std::string bucket_name(const Stage& stage, const Kind& kind) {
  std::string name = stage.name();
  if (kind.borrowed) name += " tied";
  if (kind.fp32) name += " fp32";
  if (!kind.trainable) name += " frozen";
  return name;
}

}  // namespace

std::vector<FlatBucket*> BucketSet::pointers() const {
  std::vector<FlatBucket*> result;
  for (const auto& bucket : buckets) result.push_back(bucket.get());
  return result;
}

BucketPlan plan_buckets(const std::vector<Stage*>& stages, const ShardingPolicy& policy) {
  std::map<const Parameter*, int> borrowers;
  for (const Stage* stage : stages)
    for (const Parameter* parameter : stage->borrowed()) ++borrowers[parameter];

  BucketPlan plan;
  std::map<const Parameter*, int> bucket_of_borrowed;
  for (Stage* stage : stages) {
    std::vector<std::pair<Kind, std::vector<ParameterPack*>>> groups;
    for (ParameterPack& pack : stage->table().packs()) {
      check_pack(pack, borrowers);
      const Parameter& first = *pack.parts[0];
      const Kind kind{borrowers.contains(&first) ? &first : nullptr, first.spec.trainable,
                      first.spec.keep_fp32 && at::isReducedFloatingType(policy.params)};
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const auto& entry) { return entry.first == kind; });
      if (group == groups.end()) group = groups.insert(groups.end(), {kind, {}});
      group->second.push_back(&pack);
    }
    auto& listed = plan.of_stage.emplace_back();
    for (auto& [kind, packs] : groups) {
      const int index = static_cast<int>(plan.buckets.size());
      BucketOptions options{.policy = policy,
                            .params = kind.fp32 ? at::kFloat : policy.params,
                            .trainable = kind.trainable};
      if (kind.borrowed) {
        options.uses += borrowers[kind.borrowed];
        bucket_of_borrowed[kind.borrowed] = index;
      }
      plan.buckets.push_back({bucket_name(*stage, kind), std::move(packs), options});
      listed.push_back(index);
    }
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const Parameter* parameter : stages[i]->borrowed()) {
      const auto found = bucket_of_borrowed.find(parameter);
      if (found == bucket_of_borrowed.end())
        fail("parameter", "stage {} borrows {}, which no stage of the chain owns",
             stages[i]->name(), parameter->spec.name);
      plan.of_stage[i].push_back(found->second);
    }
  }
  return plan;
}

int64_t moment_store_bytes(const BucketPlan& plan, int dp_shard) {
  int64_t bytes = 0;
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    const BucketPlacement placement = bucket.options.placement({.dp_shard = dp_shard});
    if (!placement.trainable()) continue;
    const int64_t numel = BucketLayout(bucket.packs, dp_shard).numel;
    const int64_t updated = placement.updates_everything() ? numel : numel / dp_shard;
    bytes +=
        MomentStore::bucket_bytes(updated * placement.moments() *
                                  static_cast<int64_t>(c10::elementSize(placement.moment_dtype())));
  }
  return bytes;
}

BucketSet make_buckets(const BucketPlan& plan, Mesh& mesh, MomentStore* moments) {
  BucketSet set;
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    BucketOptions options = bucket.options;
    if (options.placement(mesh.shape()).master_place() == StatePlace::kPinnedHost && !set.offload)
      set.offload = std::make_unique<OffloadStore>(mesh.device());
    options.offload = set.offload.get();
    options.moments = moments;
    set.buckets.push_back(std::make_unique<FlatBucket>(bucket.name, bucket.packs, mesh, options));
  }
  if (set.offload) set.offload->allocate();
  set.of_stage = plan.of_stage;
  return set;
}

BucketSet make_buckets(const std::vector<Stage*>& stages, Mesh& mesh,
                       const ShardingPolicy& policy) {
  return make_buckets(plan_buckets(stages, policy), mesh);
}

}  // namespace tessera

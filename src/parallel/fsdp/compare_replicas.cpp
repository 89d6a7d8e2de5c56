#include "parallel/fsdp/compare_replicas.h"

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <string>

#include "base/xxh3.h"

namespace tessera {
namespace {

// Names and hashes of what this rank must hold alike with the other ranks of one axis, in the same
// order on each of them.
class Copies {
 public:
  void add(const Segment& segment, const at::Tensor& state, const char* what) {
    const at::Tensor part = state.narrow(0, segment.shard_offset, segment.slice.numel()).cpu();
    names_.push_back(segment.parameter->spec.name + " (" + what + ")");
    hashes_.push_back(
        static_cast<int64_t>(xxh3_64(part.data_ptr(), static_cast<size_t>(part.nbytes()))));
  }

  void add_states(const FlatBucket& bucket, const Segment& segment) {
    add(segment, bucket.master(), "weights");
    if (bucket.trainable()) add(segment, bucket.grad(), "gradient");
  }

  // world_rank(i): the rank in the world of the group's rank i.
  template <typename WorldRank>
  void compare(Communicator& group, const char* axis, int64_t step, WorldRank world_rank) const {
    const auto count = static_cast<int64_t>(hashes_.size());
    const at::Tensor own = at::empty({count}, at::kLong);
    std::copy(hashes_.begin(), hashes_.end(), own.mutable_data_ptr<int64_t>());
    const at::Tensor all = at::empty({group.size() * count}, at::kLong);
    group.all_gather(all, own).wait();
    const auto* hashes = all.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < count; ++i)
      for (int rank = 1; rank < group.size(); ++rank)
        if (hashes[rank * count + i] != hashes[i])
          throw ReplicasDiffer(fmt::format(
              "[replicas] step {}: {} differs over {} between ranks {} and {}; these ranks must "
              "hold it bit for bit alike. It is a fault of the program or of a machine; compare "
              "more often to find the first step, and go on from a checkpoint before it",
              step, names_[static_cast<size_t>(i)], axis, world_rank(0), world_rank(rank)));
  }

 private:
  std::vector<std::string> names_;
  std::vector<int64_t> hashes_;
};

// By the number of ranks of a tp group that hold the same part, largest first: a difference that
// all of tp can see is reported before a few ranks stop for one that only they can see.
using CopiesByCount = std::map<int, Copies, std::greater<>>;

CopiesByCount over_tp(const std::vector<FlatBucket*>& buckets, int tp) {
  CopiesByCount copies;
  for (const FlatBucket* bucket : buckets)
    for (const Segment& segment : bucket->segments()) {
      const int count = segment.parameter->spec.tp.copies(tp);
      if (count > 1) copies[count].add_states(*bucket, segment);
    }
  return copies;
}

Copies over_dp_replicate(const std::vector<FlatBucket*>& buckets) {
  Copies copies;
  for (const FlatBucket* bucket : buckets)
    for (const Segment& segment : bucket->segments()) copies.add_states(*bucket, segment);
  return copies;
}

Copies over_dp_shard(const std::vector<FlatBucket*>& buckets) {
  Copies copies;
  for (const FlatBucket* bucket : buckets) {
    if (bucket->placement().full_copy() == FullCopy::kGathered) continue;
    for (const Segment& segment : bucket->full_segments()) {
      copies.add(segment, bucket->full(), "full copy of the weights");
      if (bucket->placement().updates_everything()) copies.add_states(*bucket, segment);
    }
  }
  return copies;
}

}  // namespace

void compare_replicas(const std::vector<FlatBucket*>& buckets, Mesh& mesh, int64_t step) {
  for (FlatBucket* bucket : buckets) bucket->settle();
  const auto world_rank = [&](int replicate, int shard, int tp) {
    return (replicate * mesh.dp_shard() + shard) * mesh.tp() + tp;
  };
  const int replicate = mesh.dp_replicate_rank(), shard = mesh.dp_shard_rank(), tp = mesh.tp_rank();
  for (const auto& [count, copies] : over_tp(buckets, mesh.tp()))
    copies.compare(mesh.tp_copies_group(count), "tp", step, [&, first = tp - tp % count](int i) {
      return world_rank(replicate, shard, first + i);
    });
  if (mesh.dp_replicate() > 1)
    over_dp_replicate(buckets).compare(mesh.replicate_group(), "dp_replicate", step,
                                       [&](int i) { return world_rank(i, shard, tp); });
  if (mesh.dp_shard() > 1)
    over_dp_shard(buckets).compare(mesh.gather_group(), "dp_shard", step,
                                   [&](int i) { return world_rank(replicate, i, tp); });
}

}  // namespace tessera

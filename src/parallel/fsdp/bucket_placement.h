#pragma once

#include "parallel/fsdp/sharding_policy.h"
#include "parallel/memory_ledger.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// What the parameters of one bucket have in common, beside the policy of the run.
struct BucketTraits {
  at::ScalarType params = at::kFloat;  // as stages see them: the policy's, or fp32 where kept so
  bool trainable = true;               // false: frozen; no gradient, no moments
  int uses = 1;                        // stages that read it; several for tied weights
};

// Where stages find the whole of a bucket's parameters.
enum class FullCopy {
  kResident,  // in the master itself: nothing is ever gathered
  kKept,      // in memory of its own, which a gather refreshes after each update
  kGathered,  // in a ring slot, which a gather fills before each use
};

// The memory that a state lies in between its uses.
enum class StatePlace { kDevice, kPinnedHost, kFile };

// What a ledger counts a state as that on the device would be `on_device`.
MemoryClass class_of(StatePlace place, MemoryClass on_device);

// Where the states of one bucket live and which way its gradient takes: what a ShardingPolicy means
// for a bucket with these traits on a mesh of this shape. The buckets, which allocate, and the
// memory model, which predicts, both ask here, so that they cannot differ in policy. It counts no
// bytes: each of the two does that by itself, and a test compares them.
class BucketPlacement {
 public:
  BucketPlacement(const ShardingPolicy& policy, const MeshShape& mesh, const BucketTraits& traits);

  const BucketTraits& traits() const { return traits_; }
  bool trainable() const { return traits_.trainable; }

  // The dtypes of the full copy; of the master and the kept gradient; of the moments.
  at::ScalarType params() const { return traits_.params; }
  at::ScalarType wide() const { return wide_; }
  at::ScalarType moment_dtype() const;
  // How many moments the optimizer keeps for a trainable bucket.
  int moments() const { return policy_.moments; }

  FullCopy full_copy() const;
  // Master, moments and the gradient that the optimizer reads have all elements of the bucket
  // (zero 0); else this rank's shard.
  bool updates_everything() const { return policy_.zero == 0; }
  // The master is a part of the kept full copy, so it takes no memory of its own.
  bool master_in_copy() const;
  // Where the master lies, and the moments.
  StatePlace master_place() const;
  StatePlace moments_place() const;

  // The rest is about trainable buckets alone.

  // What stays over the micro-batches of a step is the gradient of the whole bucket; else of the
  // shard.
  bool keeps_full_gradient() const { return policy_.keeps_full_gradients(); }
  StatePlace gradient_place() const;
  // The backward pass adds into the kept gradient, without a ring slot between.
  bool adds_directly() const;
  // Each use of the bucket is reduced by itself; else the uses are added up and reduced once a
  // step. `single`: the step has one micro-batch.
  bool reduces_each_use(bool single) const {
    return !keeps_full_gradient() || (traits_.uses > 1 && single);
  }
  // A reduction may arrive when the kept gradient holds an earlier one, and so needs a place beside
  // it to be added from.
  bool adds_reductions() const { return !keeps_full_gradient() || traits_.uses > 1; }
  GradReduce reduce() const { return policy_.reduce; }
  // What a step's last reduction goes on with after the reduce-scatter: an all-reduce of the shard
  // over dp_replicate; an all-gather over dp_shard.
  bool reduces_over_replicas() const { return mesh_.dp_replicate > 1; }
  bool gathers_gradient() const { return updates_everything() && mesh_.dp_shard > 1; }
  // The operations of that reduction, each of which starts when the one before has ended.
  int reduce_operations() const {
    return 1 + (reduces_over_replicas() ? 1 : 0) + (gathers_gradient() ? 1 : 0);
  }

 private:
  ShardingPolicy policy_;
  MeshShape mesh_;
  BucketTraits traits_;
  at::ScalarType wide_;
};

}  // namespace tessera

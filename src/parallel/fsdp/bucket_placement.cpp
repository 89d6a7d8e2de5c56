#include "parallel/fsdp/bucket_placement.h"

namespace tessera {

MemoryClass class_of(StatePlace place, MemoryClass on_device) {
  switch (place) {
    case StatePlace::kPinnedHost:
      return MemoryClass::kOffloadHost;
    case StatePlace::kFile:
      return MemoryClass::kOffloadFile;
    case StatePlace::kDevice:
      break;
  }
  return on_device;
}

BucketPlacement::BucketPlacement(const ShardingPolicy& policy, const MeshShape& mesh,
                                 const BucketTraits& traits)
    : policy_(policy), mesh_(mesh), traits_(traits), wide_(master_dtype(traits.params)) {}

at::ScalarType BucketPlacement::moment_dtype() const {
  return wide_ == at::kDouble ? wide_ : policy_.moment_dtype;
}

FullCopy BucketPlacement::full_copy() const {
  const bool master_is_whole = updates_everything() || mesh_.dp_shard == 1;
  if (master_is_whole && params() == wide_ && master_place() == StatePlace::kDevice)
    return FullCopy::kResident;
  return policy_.zero <= 2 ? FullCopy::kKept : FullCopy::kGathered;
}

bool BucketPlacement::master_in_copy() const {
  return full_copy() == FullCopy::kKept && params() == wide_ &&
         master_place() == StatePlace::kDevice;
}

StatePlace BucketPlacement::master_place() const {
  return policy_.offload_optimizer ? StatePlace::kPinnedHost : StatePlace::kDevice;
}

StatePlace BucketPlacement::moments_place() const {
  if (policy_.offload_optimizer) return StatePlace::kPinnedHost;
  return policy_.moments_on_disk ? StatePlace::kFile : StatePlace::kDevice;
}

StatePlace BucketPlacement::gradient_place() const {
  return policy_.offload_gradients && !keeps_full_gradient() ? StatePlace::kPinnedHost
                                                             : StatePlace::kDevice;
}

bool BucketPlacement::adds_directly() const {
  // With one shard there is nothing to reduce. A reduction in bf16 rounds the gradient, though, and
  // must do that on every mesh alike.
  const bool nothing_to_reduce = mesh_.dp_shard == 1 && policy_.reduce == GradReduce::kWide;
  return traits_.uses == 1 && params() == wide_ && gradient_place() == StatePlace::kDevice &&
         (keeps_full_gradient() || nothing_to_reduce);
}

}  // namespace tessera

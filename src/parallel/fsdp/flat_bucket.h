#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/fsdp/bucket_gradient.h"
#include "parallel/fsdp/bucket_layout.h"
#include "parallel/fsdp/bucket_placement.h"
#include "parallel/fsdp/moment_store.h"
#include "parallel/fsdp/offload_store.h"
#include "parallel/fsdp/repointable_tensor.h"
#include "parallel/mesh.h"
#include "parallel/parameter.h"

namespace tessera {

struct BucketOptions {
  ShardingPolicy policy;
  at::ScalarType params = at::kFloat;  // the policy's, or fp32 for what is kept in fp32
  bool trainable = true;
  int uses = 1;                     // stages that read it
  MomentStore* moments = nullptr;   // policy.moments_on_disk: where; outlives the bucket
  OffloadStore* offload = nullptr;  // policy.offload_optimizer: the same

  BucketPlacement placement(const MeshShape& mesh) const {
    return {policy, mesh, {params, trainable, uses}};
  }
};

// The states of a bucket as its update reads and writes them, on the device, as long as this lives.
struct BucketUpdate {
  StoreUse use;
  at::Tensor master, grad;
  std::vector<at::Tensor> moments;
};

// clang-format off
// Parameters that are alike, as one flat tensor (ZeRO, Rajbhandari et al. 2020; flat and padded
// once as in FSDP, Zhao et al. 2023).
//
//   full    | q_proj k_proj v_proj | o_proj | norm | ... | pad |   numel() elements, params dtype
//   shards  |   rank 0   |   rank 1   |   rank 2   |   rank 3  |   shard_numel() each
//
// Invariants
// - Data-parallel rank r owns elements [r * shard_numel, (r + 1) * shard_numel): it draws, counts
//   and writes them at every stage of ZeRO. master(), grad() and moments() hold that shard, at zero
//   0 everything; pad and gaps included (always zero).
// - `full` is re-pointable. At zero 3 the executor points it at ring slots. Below, it stays, and a
//   gather refreshes it after an update. Where the master is whole on this rank's device and of the
//   same dtype, `full` is the master (resident): nothing is ever gathered.
// clang-format on
class FlatBucket {
 public:
  // Sets the value and grad of the packs and their parameters, which outlive the bucket. Error if
  // the policy puts states into a store that `options` do not have, or the other way round.
  FlatBucket(std::string name, std::vector<ParameterPack*> packs, Mesh& mesh,
             const BucketOptions& options);

  const std::string& name() const { return name_; }
  const Device& device() const { return mesh_.device(); }
  const BucketPlacement& placement() const { return placement_; }
  bool trainable() const { return placement_.trainable(); }
  int64_t numel() const { return layout_.numel; }
  int64_t shard_numel() const { return numel() / mesh_.dp_shard(); }
  // This rank's own slice: counted in norms, written to checkpoints.
  const std::vector<Segment>& segments() const { return segments_; }
  // What this rank's optimizer updates and a checkpoint fills: the same, at zero 0 everything.
  const std::vector<Segment>& update_segments() const { return update_segments_; }

  // The full copy as stages read it, and where each parameter lies in it. It is there between steps
  // unless it is FullCopy::kGathered, and fresh after a forward pass.
  const at::Tensor& full() const { return full_.tensor(); }
  std::vector<Segment> full_segments() const { return layout_.segments(0, numel(), 0); }

  // In the master's dtype (fp32, fp64 throughout a run in fp64).
  const at::Tensor& master() const { return master_; }
  // Trainable buckets alone.
  const at::Tensor& grad() const { return gradient_->kept(); }
  std::vector<at::Tensor>& moments() { return moments_; }
  // The update of a trainable bucket.
  BucketUpdate begin_update();
  // Before master() and moments() are read or written outside of an update: offloaded ones hold
  // then what the last update wrote. The host waits for that.
  void settle() {
    if (offload_) offload_->release();
  }
  void add_to(MemoryLedger& ledger) const;

  // Bytes of the slot that a gather needs; 0: none.
  int64_t gather_slot_bytes() const;
  // The master has changed: the next start_gather() of a full copy does something.
  void mark_changed() { changed_ = true; }

  // Starts the gather of the parameters, into `slot` if it needs one; wait_gather() makes them
  // usable. False if there was nothing to do.
  bool start_gather(void* slot);
  void wait_gather();
  void release(void* poison);

  // Trainable buckets alone.
  BucketGradient& gradient() { return *gradient_; }
  const BucketGradient& gradient() const { return *gradient_; }

  // For the error path: if an operation is still on its way, aborts the world and returns when this
  // rank's memory is no longer touched.
  void abandon() noexcept;

 private:
  void allocate();
  at::Tensor zero_state(at::ScalarType dtype) const;
  int64_t updated_numel() const {
    return placement_.updates_everything() ? numel() : shard_numel();
  }
  void allocate_moments();
  void bind_parameters();
  void take_values(const Parameter& part);
  void copy_master(const at::Tensor& to);

  std::string name_;
  Mesh& mesh_;
  BucketPlacement placement_;
  MomentStore* moment_store_;  // null: the moments lie elsewhere
  OffloadStore* offload_;      // null: the master lies on the device
  BucketLayout layout_;
  bool changed_ = true;
  std::vector<Segment> segments_, update_segments_;
  RepointableTensor full_;
  at::Tensor full_memory_;  // of a full copy that stays
  at::Tensor master_;
  std::vector<at::Tensor> moments_;
  int place_in_store_ = 0;
  std::optional<BucketGradient> gradient_;
  Work gather_;
};

}  // namespace tessera

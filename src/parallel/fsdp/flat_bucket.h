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

// The states of a bucket on the device, as its update reads and writes them; valid while it lives.
struct BucketUpdate {
  StoreUse use;
  at::Tensor master, grad;
  std::vector<at::Tensor> moments;
};

// clang-format off
// The parameters of a stage that are alike, as one flat tensor (ZeRO, Rajbhandari et al. 2020; flat
// and padded once as in FSDP, Zhao et al. 2023): one collective moves them, one pass updates them.
//
//   full    | q_proj k_proj v_proj | o_proj | norm | ... | pad |   numel() elements, params dtype
//   shards  |   rank 0   |   rank 1   |   rank 2   |   rank 3  |   shard_numel() each
//
// A step at zero 3 (BucketPlacement says what is different elsewhere):
//
//   start_gather(slot)   `full` points at the slot; all ranks' shards of the master arrive there
//   wait_gather()        stages read the parameters, which are views of `full`
//   release()            `full` points at nothing; the slot is free for another bucket
//   gradient()           the backward pass adds into it; the sum over ranks arrives in grad()
//   begin_update()       the optimizer reads grad(), and writes master() and moments()
//   mark_changed()       the next gather brings the new values
//
// Invariants
// - Data-parallel rank r owns elements [r * shard_numel, (r + 1) * shard_numel): it draws, counts
//   and writes them at every stage of ZeRO. master(), grad() and moments() hold that shard, at zero
//   0 the whole bucket. Pads and gaps lie in them too and are always zero.
// - The storage of `full` is one object for the whole run; only the memory behind it is exchanged.
//   So what autograd saved in the forward pass is valid again when the same values have been
//   gathered for the backward pass.
// - `full` may be read from wait_gather() to release(); always where it is FullCopy::kResident.
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
  // The parameters in this rank's own shard: counted in norms, written to checkpoints.
  const std::vector<Segment>& segments() const { return segments_; }
  // Those that this rank's optimizer updates and that loading a checkpoint fills: the same, at zero
  // 0 all of the bucket's.
  const std::vector<Segment>& update_segments() const { return update_segments_; }

  // The full copy as stages read it, and where each parameter lies in it. It is there between steps
  // unless it is FullCopy::kGathered, and fresh after a forward pass.
  const at::Tensor& full() const { return full_.tensor(); }
  std::vector<Segment> full_segments() const { return layout_.segments(0, numel(), 0); }

  // [shard_numel()], at zero 0 [numel()]. Master and gradient are of BucketPlacement::wide(), fp32
  // or fp64, the moments of its moment_dtype(). Only trainable buckets have a gradient and moments.
  const at::Tensor& master() const { return master_; }
  const at::Tensor& grad() const { return gradient_->kept(); }
  std::vector<at::Tensor>& moments() { return moments_; }
  // Starts the update of a trainable bucket, which ends when the result goes.
  BucketUpdate begin_update();
  // Call it before master() and moments() are read or written outside of an update: the host waits
  // until offloaded ones hold what the last update wrote.
  void settle() {
    if (offload_) offload_->release();
  }
  void add_to(MemoryLedger& ledger) const;

  // Bytes of the slot that a gather needs; 0: it needs none.
  int64_t gather_slot_bytes() const;
  // The master has changed: a kept full copy is out of date until the next gather.
  void mark_changed() { changed_ = true; }

  // Starts the gather of the parameters, behind what the current stream holds: all ranks of
  // dp_shard call it in the same order. `slot`: gather_slot_bytes() bytes of the device, which are
  // the bucket's until release(); null if it needs none. False, and no wait_gather() need follow,
  // if there is nothing to do: the full copy is the master, or up to date.
  bool start_gather(void* slot);
  // Orders the current stream after the gather, on the CPU the host: now stages may read. Throws
  // what went wrong in the gather.
  void wait_gather();
  // Takes the slot from a bucket that has one: until the next gather its parameters read as
  // `poison` (gather_slot_bytes() bytes of NaN, for finding readers that come too late) or, if that
  // is null, have no memory, so that reading them is a fault. The slot may be written again once
  // the stages that were started before have read it. Nothing happens to a bucket without a slot.
  void release(void* poison);

  // Trainable buckets alone.
  BucketGradient& gradient() { return *gradient_; }
  const BucketGradient& gradient() const { return *gradient_; }

  // When an error unwinds the stack: if an operation is still on its way, aborts the world and
  // returns when nothing touches this rank's memory any more.
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
  at::Tensor full_memory_;  // behind full_ where it is FullCopy::kKept
  at::Tensor master_;
  std::vector<at::Tensor> moments_;
  int place_in_store_ = 0;
  std::optional<BucketGradient> gradient_;
  Work gather_;
};

}  // namespace tessera

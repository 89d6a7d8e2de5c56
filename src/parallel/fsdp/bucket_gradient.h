#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/fsdp/bucket_placement.h"
#include "parallel/fsdp/repointable_tensor.h"
#include "parallel/memory_ledger.h"
#include "parallel/mesh.h"

namespace tessera {

// Where a backward pass stands in its step.
struct MicroStep {
  bool first = true;  // the first micro-batch: gradients start at zero
  bool last = true;   // the last: afterwards they are complete
};

// What one backward pass brings to the gradient of a bucket. A micro-batch has one for each stage
// that uses the bucket.
struct ReduceStep {
  bool first = true;   // nothing of this step is in the kept gradient yet
  bool last = true;    // nothing more comes in this step
  bool single = true;  // the step has one micro-batch
};

// Memory of the device that a reduction works in; may be larger than what is asked for.
struct ReduceBuffers {
  at::Tensor staging;     // [staging_numel()] of the master's dtype, until the first advance()
  at::Tensor wire;        // [wire_bytes()] bytes, until the first advance()
  at::Tensor shard_slot;  // [shard_slot_numel()] of the master's dtype, until advance() is false
};

// clang-format off
// The gradient of one bucket: what the backward pass adds into, what stays over the micro-batches
// of a step, and the way from one to the other over ranks.
//
//   backward adds into   view()           a ring slot, or the kept gradient itself (direct)
//   kept over the step   full or shard    in the master's dtype; ShardingPolicy says which
//   the way              reduce-scatter over dp_shard -> all-reduce of the shard over dp_replicate
//                        -> at zero 0 all-gather over dp_shard
//
// An offloaded shard (ShardingPolicy) is kept in the host's memory: each reduction copies it to the
// device, adds to it there and copies it back.
//
// A bucket that several stages use is reduced once for each use, in every stage of ZeRO alike, so
// that all give the same bits; only where gradients are kept in full over several micro-batches are
// the uses added up before.
// clang-format on
class BucketGradient {
 public:
  // numel: of the bucket, whose placement says that it is trainable.
  BucketGradient(Mesh& mesh, const BucketPlacement& placement, int64_t numel);

  // [numel] of the params dtype: what the backward pass adds into, from begin() to start_reduce().
  const at::Tensor& view() const { return view_.tensor(); }
  // What the optimizer reads once the step's reductions are done, in the master's dtype: this
  // rank's shard [shard_numel], at zero 0 all [numel].
  const at::Tensor& kept() const {
    return placement_.updates_everything() || offloaded() ? kept_ : own_;
  }
  bool offloaded() const { return placement_.gradient_place() == StatePlace::kPinnedHost; }

  // Bytes of the ring slot that begin() needs; 0: the backward pass adds into the kept gradient.
  int64_t slot_bytes() const;
  // What start_reduce() needs as ReduceBuffers: for what arrives beside the kept gradient, in
  // elements of the master's dtype; to convert what travels, in bytes; for an offloaded shard while
  // it is added to, in elements of the master's dtype.
  int64_t staging_numel() const;
  int64_t wire_bytes() const;
  int64_t shard_slot_numel() const { return offloaded() ? shard_ : 0; }
  void add_to(MemoryLedger& ledger) const;

  // Before a backward pass: view() starts at zero, or where the kept gradient stands. `slot`:
  // slot_bytes() bytes of the device, or null. first: as in ReduceStep.
  void begin(void* slot, bool first);
  // After it: the gradient goes on its way, behind what the current stream holds. Collective over
  // dp_shard. False if no operation was needed now. advance() follows in any case, until it is
  // false, and before the next start_reduce().
  bool start_reduce(const ReduceStep& step, const ReduceBuffers& buffers);
  // Orders the current stream (on the CPU: the host) after the operation on its way and starts the
  // next one; false when none is left. After the first call the slot is free, as far as that stream
  // has come. Throws what went wrong in the operation.
  bool advance();
  // For FlatBucket::abandon(): the operation on its way.
  Work& work() { return work_; }

 private:
  enum class Phase { kIdle, kReduceScatter, kAllReduce, kAllGather };

  void add_up(const at::Tensor& to, const at::Tensor& from, bool first);
  void reduce_scatter(const at::Tensor& from, const ReduceBuffers& buffers);
  bool next_phase();

  Mesh& mesh_;
  BucketPlacement placement_;
  int64_t numel_;
  int64_t shard_;    // elements of this rank's shard
  bool direct_;      // the backward pass adds into kept_
  at::Tensor kept_;  // [numel] or [shard]
  at::Tensor own_;   // this rank's shard, on the device; undefined while it is offloaded
  RepointableTensor view_;
  Work work_;
  Phase phase_ = Phase::kIdle;
  bool first_ = true;
  bool last_ = true;
  bool begun_ = false;   // a backward pass adds into view() now
  at::Tensor arriving_;  // where the reduce-scatter writes
};

}  // namespace tessera

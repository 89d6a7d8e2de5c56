#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

// How gradients travel between data-parallel ranks.
enum class GradReduce {
  kWide,      // sums and result in the master's dtype
  kBf16,      // bf16 travels, the result is rounded to bf16
  kBf16Wire,  // bf16 travels, sums and result are fp32: half the bytes, one rounding per addend
};

// What a run chooses about its states (ZeRO, Rajbhandari et al. 2020). One executor and one bucket
// serve all stages; this is all that differs.
//
//   zero  parameters between steps  gathered           gradients                        optimizer
//   0     full                      never              reduced and gathered, full       full
//   1     full                      after the update   full, reduce-scattered per step  shard
//   2     full                      after the update   reduce-scattered per micro-batch shard
//   3     shard                     before each use    reduce-scattered per micro-batch shard
//
// Every stage uses the same slices and the same order of sums (dp_shard, then dp_replicate), so
// without accumulation all give the same bits.
struct ShardingPolicy {
  int zero = 3;
  // zero 2 and 3: false keeps the gradients in full over the micro-batches of a step and reduces
  // once.
  bool reduce_per_micro_batch = true;
  at::ScalarType params = at::kFloat;  // as stages see them; fp64 makes every state fp64
  GradReduce reduce = GradReduce::kWide;
  int moments = 2;                           // of the optimizer, per trainable parameter
  at::ScalarType moment_dtype = at::kFloat;  // ignored where the master is fp64
  bool moments_on_disk = false;              // in a MomentFile
  bool offload_optimizer = false;  // masters and moments in pinned host memory (OffloadStore)
  bool offload_gradients = false;  // gradients too, where a shard of them is kept

  bool keeps_full_gradients() const { return zero <= 1 || !reduce_per_micro_batch; }
};

// Master weights have at least fp32.
inline at::ScalarType master_dtype(at::ScalarType params) {
  return params == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace tessera

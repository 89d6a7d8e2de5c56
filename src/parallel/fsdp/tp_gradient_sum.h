#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "parallel/fsdp/flat_bucket.h"
#include "parallel/memory_ledger.h"
#include "parallel/mesh.h"

namespace tessera {

// Elements from which on a gradient travels as it lies.
inline constexpr int64_t kLargeTpGradient = int64_t{1} << 16;

// Completes the gradients that are partial over tensor parallelism
// (ParameterSpec::sums_gradient_over_tp): norms and row biases under sequence parallelism over tp,
// key and value heads fewer than tp over the ranks that hold the same one.
//
// It runs once a step on what the reductions over data-parallel ranks have left (sums commute), in
// fixed rank order, so all stages of ZeRO have the same bits. Small segments travel packed, large
// ones as they lie.
class TpGradientSum {
 public:
  // Collective over tp. `buckets` and `mesh` outlive it.
  TpGradientSum(const std::vector<FlatBucket*>& buckets, Mesh& mesh);

  // After the last micro-batch of a step and before anyone reads the gradients. Collective over tp.
  void run();

  void add_to(MemoryLedger& ledger) const;

 private:
  // By the number of ranks that sum: this rank's parts of the gradients.
  std::map<int, std::vector<at::Tensor>> large_, small_;
  Mesh& mesh_;
  at::Tensor packed_;  // holds all small ones of a number
};

}  // namespace tessera

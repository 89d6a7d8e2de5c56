#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "parallel/fsdp/flat_bucket.h"
#include "parallel/memory_ledger.h"
#include "parallel/mesh.h"

namespace tessera {

// Gradients with at least this many elements are summed where they lie, smaller ones packed.
inline constexpr int64_t kLargeTpGradient = int64_t{1} << 16;

// Completes the gradients that are partial over tensor parallelism
// (ParameterSpec::sums_gradient_over_tp). Under sequence parallelism these are norms and row
// biases, summed over tp; with fewer key and value heads than ranks, the weights of those heads,
// summed over the ranks that hold the same one.
//
// It runs once a step, after the reductions over data-parallel ranks: which of the two sums is
// first makes no difference to what is summed. Each adds in fixed rank order, so all stages of ZeRO
// have the same bits. Small segments are packed into one operation, large ones go as they lie.
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
  at::Tensor packed_;  // [as many elements as the small gradients of any one group have together]
};

}  // namespace tessera

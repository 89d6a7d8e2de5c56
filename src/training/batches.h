#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/indexed_dataset.h"
#include "data/sampler.h"
#include "parallel/executor/stage.h"

namespace tessera {

struct BatchShape {
  int64_t seq_len;
  int64_t micro_batch_size;
  int64_t vocab_size;
  int dp;                               // data-parallel ranks
  int dp_rank;                          // this one
  at::ScalarType weights = at::kFloat;  // dtype of the tokens' weights; fp64 in fp64 runs
};

// Micro-batch `index` of those that this rank runs for a global batch; every rank runs
// num_micro_batches(). Token losses weigh 1 / (counting tokens of the global batch), rows that only
// fill up weigh 0, so summing the ranks' losses and gradients gives the mean over the global batch
// on any mesh. `first_row`: the place of the global batch's first row in the run (updates before it
// times the global batch size), which names dropout masks; none: no dropout (evaluation).
MicroBatch load_micro_batch(const TokenStream& stream, const std::vector<int64_t>& global_batch,
                            const BatchShape& shape, int64_t index,
                            std::optional<int64_t> first_row);

}  // namespace tessera

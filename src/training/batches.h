#pragma once

#include <cstdint>
#include <vector>

#include "data/indexed_dataset.h"
#include "data/sampler.h"
#include "parallel/executor/stage.h"

namespace tessera {

struct BatchShape {
  int64_t seq_len;
  int64_t micro_batch_size;
  int64_t vocab_size;
  int dp;       // data-parallel ranks
  int dp_rank;  // this one
};

// The micro-batches that this rank runs for a global batch, the same number on every rank. Token
// losses weigh 1 / (counting tokens of the global batch), rows that only fill up weigh 0, so
// summing the ranks' losses and gradients gives the mean over the global batch on any mesh.
std::vector<MicroBatch> micro_batches(const TokenStream& stream,
                                      const std::vector<int64_t>& global_batch,
                                      const BatchShape& shape);

}  // namespace tessera

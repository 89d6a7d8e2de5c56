#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/sample_source.h"

namespace tessera {

// Samples [begin, end) of the global sample counter.
struct SampleRange {
  int64_t begin;
  int64_t end;
  bool operator==(const SampleRange&) const = default;
};

// Adds a range to `ranges`, which are in rising order and do not touch, and joins ranges that touch
// afterwards.
void add_range(std::vector<SampleRange>& ranges, SampleRange range);

// A global batch: the ids of its samples, and the range of the sample counter that it used up; the
// range includes the counters in it that were skipped.
struct GlobalBatch {
  std::vector<int64_t> samples;
  SampleRange counters;
};

// The next `size` samples from `position` on that are not in `skipped` (as add_range() keeps it).
GlobalBatch next_batch(const Sampler& sampler, int64_t position, int64_t size,
                       const std::vector<SampleRange>& skipped);

struct BatchShape {
  int64_t micro_batch_size;
  int dp;                               // data-parallel ranks
  int dp_rank;                          // this one
  at::ScalarType weights = at::kFloat;  // dtype of the targets' weights; fp64 in fp64 runs
  double loss_scale = 1.0;
};

// Micro-batch `index` of those that this rank runs for a global batch; every rank runs
// num_micro_batches(). Targets weigh loss_scale / (counting targets of the global batch), those of
// padding and of rows that only fill up weigh 0, so summing the ranks' losses and gradients gives
// the mean over the global batch on any mesh, times loss_scale. `first_row`: the place of the
// global batch's first row in the run (samples trained on before it), which names dropout masks;
// none: no dropout (evaluation).
MicroBatch load_micro_batch(const SampleSource& source, const std::vector<int64_t>& global_batch,
                            const BatchShape& shape, int64_t index,
                            std::optional<int64_t> first_row);

}  // namespace tessera

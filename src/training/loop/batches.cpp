#include "training/loop/batches.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera {

void add_range(std::vector<SampleRange>& ranges, SampleRange range) {
  ranges.push_back(range);
  std::sort(ranges.begin(), ranges.end(),
            [](const SampleRange& a, const SampleRange& b) { return a.begin < b.begin; });
  std::vector<SampleRange> joined;
  for (const SampleRange& next : ranges) {
    if (!joined.empty() && next.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, next.end);
    } else {
      joined.push_back(next);
    }
  }
  ranges = std::move(joined);
}

GlobalBatch next_batch(const Sampler& sampler, int64_t position, int64_t size,
                       const std::vector<SampleRange>& skipped) {
  GlobalBatch batch{{}, {position, position}};
  auto next_skipped = skipped.begin();
  int64_t& counter = batch.counters.end;
  while (static_cast<int64_t>(batch.samples.size()) < size) {
    while (next_skipped != skipped.end() && next_skipped->end <= counter) ++next_skipped;
    if (next_skipped != skipped.end() && next_skipped->begin <= counter) {
      counter = next_skipped->end;
    } else {
      batch.samples.push_back(sampler.sample_at(counter++));
    }
  }
  return batch;
}

MicroBatch load_micro_batch(const SampleSource& source, const std::vector<int64_t>& global_batch,
                            const BatchShape& shape, int64_t index,
                            std::optional<int64_t> first_row) {
  const auto rows =
      micro_batch_rows(global_batch, shape.micro_batch_size, shape.dp, shape.dp_rank, index);
  LoadOptions options;
  options.dtype = shape.weights;
  options.target_weight =
      shape.loss_scale / static_cast<double>(counted_targets(source, global_batch));
  const int64_t place = (index * shape.dp + shape.dp_rank) * shape.micro_batch_size;
  if (first_row) options.first_row = *first_row + place;
  MicroBatch batch = source.load(rows, options);
  if (options.first_row)
    batch.rows = at::arange(*options.first_row,
                            *options.first_row + static_cast<int64_t>(rows.size()), at::kLong);
  return batch;
}

}  // namespace tessera

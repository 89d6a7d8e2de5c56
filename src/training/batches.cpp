#include "training/batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

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

MicroBatch load_micro_batch(const TokenStream& stream, const std::vector<int64_t>& global_batch,
                            const BatchShape& shape, int64_t index,
                            std::optional<int64_t> first_row) {
  const int64_t s = shape.seq_len;
  const double token_weight =
      shape.loss_scale / static_cast<double>(static_cast<int64_t>(global_batch.size()) * s);
  const auto rows =
      micro_batch_rows(global_batch, shape.micro_batch_size, shape.dp, shape.dp_rank, index);
  const auto n = static_cast<int64_t>(rows.size());
  MicroBatch batch{at::empty({n, s}, at::kLong),
                   at::empty({n, s}, at::kLong),
                   at::zeros({n, s}, shape.weights),
                   {}};
  auto* tokens = batch.tokens.mutable_data_ptr<int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<int64_t>();
  std::vector<int64_t> sample(static_cast<size_t>(s + 1));
  for (int64_t row = 0; row < n; ++row) {
    stream.read_sample(rows[row].sample, shape.vocab_size, sample);
    std::copy(sample.begin(), sample.end() - 1, tokens + row * s);
    std::copy(sample.begin() + 1, sample.end(), targets + row * s);
    if (rows[row].counts) batch.weights[row].fill_(token_weight);
  }
  if (first_row) {
    const int64_t place = (index * shape.dp + shape.dp_rank) * shape.micro_batch_size;
    batch.rows = at::arange(*first_row + place, *first_row + place + n, at::kLong);
  }
  return batch;
}

}  // namespace tessera

#include "training/batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

namespace tessera {

std::vector<MicroBatch> micro_batches(const TokenStream& stream,
                                      const std::vector<int64_t>& global_batch,
                                      const BatchShape& shape) {
  const int64_t s = shape.seq_len;
  const float token_weight =
      1.0F / static_cast<float>(static_cast<int64_t>(global_batch.size()) * s);
  const int64_t count = num_micro_batches(static_cast<int64_t>(global_batch.size()),
                                          shape.micro_batch_size, shape.dp);
  std::vector<MicroBatch> batches;
  std::vector<int64_t> sample(static_cast<size_t>(s + 1));
  for (int64_t index = 0; index < count; ++index) {
    const auto rows =
        micro_batch_rows(global_batch, shape.micro_batch_size, shape.dp, shape.dp_rank, index);
    const auto n = static_cast<int64_t>(rows.size());
    MicroBatch batch{at::empty({n, s}, at::kLong), at::empty({n, s}, at::kLong),
                     at::empty({n, s}, at::kFloat)};
    for (int64_t row = 0; row < n; ++row) {
      stream.read_sample(rows[row].sample, shape.vocab_size, sample);
      std::copy(sample.begin(), sample.end() - 1,
                batch.tokens.mutable_data_ptr<int64_t>() + row * s);
      std::copy(sample.begin() + 1, sample.end(),
                batch.targets.mutable_data_ptr<int64_t>() + row * s);
      std::fill_n(batch.weights.mutable_data_ptr<float>() + row * s, s,
                  rows[row].counts ? token_weight : 0.0F);
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

}  // namespace tessera

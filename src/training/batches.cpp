#include "training/batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

namespace tessera {

MicroBatch load_micro_batch(const TokenStream& stream, const std::vector<int64_t>& global_batch,
                            const BatchShape& shape, int64_t index) {
  const int64_t s = shape.seq_len;
  const float token_weight =
      1.0F / static_cast<float>(static_cast<int64_t>(global_batch.size()) * s);
  const auto rows =
      micro_batch_rows(global_batch, shape.micro_batch_size, shape.dp, shape.dp_rank, index);
  const auto n = static_cast<int64_t>(rows.size());
  MicroBatch batch{at::empty({n, s}, at::kLong),
                   at::empty({n, s}, at::kLong),
                   at::empty({n, s}, at::kFloat),
                   {}};
  auto* tokens = batch.tokens.mutable_data_ptr<int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<int64_t>();
  auto* weights = batch.weights.mutable_data_ptr<float>();
  std::vector<int64_t> sample(static_cast<size_t>(s + 1));
  for (int64_t row = 0; row < n; ++row) {
    stream.read_sample(rows[row].sample, shape.vocab_size, sample);
    std::copy(sample.begin(), sample.end() - 1, tokens + row * s);
    std::copy(sample.begin() + 1, sample.end(), targets + row * s);
    std::fill_n(weights + row * s, s, rows[row].counts ? token_weight : 0.0F);
  }
  return batch;
}

}  // namespace tessera

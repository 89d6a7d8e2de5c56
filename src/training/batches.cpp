#include "training/batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

namespace tessera {

MicroBatch load_micro_batch(const TokenStream& stream, const std::vector<int64_t>& global_batch,
                            const BatchShape& shape, int64_t index,
                            std::optional<int64_t> first_row) {
  const int64_t s = shape.seq_len;
  const double token_weight =
      1.0 / static_cast<double>(static_cast<int64_t>(global_batch.size()) * s);
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

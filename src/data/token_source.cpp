#include "data/token_source.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera {

TokenSource::TokenSource(const std::vector<std::string>& prefixes, int64_t seq_len,
                         int64_t vocab_size)
    : stream_(prefixes, seq_len), seq_len_(seq_len), vocab_size_(vocab_size) {}

void TokenSource::check_samples(int64_t count) const {
  stream_.check_samples(count, vocab_size_);
}

MicroBatch TokenSource::load(std::span<const SampleSlot> rows, const LoadOptions& options) const {
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t s = seq_len_;
  MicroBatch batch{.tokens = at::empty({n, s}, at::kLong),
                   .targets = at::empty({n, s}, at::kLong),
                   .weights = at::zeros({n, s}, options.dtype)};
  auto* tokens = batch.tokens.mutable_data_ptr<int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<int64_t>();
  std::vector<int64_t> sample(static_cast<size_t>(s + 1));
  for (int64_t row = 0; row < n; ++row) {
    stream_.read_sample(rows[row].sample, vocab_size_, sample);
    std::copy(sample.begin(), sample.end() - 1, tokens + row * s);
    std::copy(sample.begin() + 1, sample.end(), targets + row * s);
    if (rows[row].counts) batch.weights[row].fill_(options.target_weight);
  }
  return batch;
}

}  // namespace tessera

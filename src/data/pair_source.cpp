#include "data/pair_source.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

void check_length(const IndexedDataset& data, int64_t sequence, const char* key, int64_t limit) {
  const int64_t length = data.sequence_length(sequence);
  if (length + 1 > limit)
    fail_user("data",
              "sequence {} of {} has {} tokens, {} with its end; data.{} is {} and nothing is cut: "
              "raise it, or take the pair out of both data sets",
              sequence, data.prefix(), length, length + 1, key, limit);
}

}  // namespace

PairSource::PairSource(const std::vector<std::string>& source,
                       const std::vector<std::string>& target, const PairOptions& options)
    : options_(options), first_sample_{0} {
  if (source.empty()) fail_user("data", "no data: at least one pair of prefixes is needed");
  if (source.size() != target.size())
    fail_user("data", "{} source data sets and {} target data sets; each has its partner",
              source.size(), target.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const IndexedDataset& from = source_.emplace_back(source[i]);
    const IndexedDataset& to = target_.emplace_back(target[i]);
    if (from.num_sequences() != to.num_sequences())
      fail_user("data",
                "{} has {} sequences and {} has {}; sequence i of one belongs to i of the other",
                source[i], from.num_sequences(), target[i], to.num_sequences());
    for (int64_t k = 0; k < from.num_sequences(); ++k) {
      check_length(from, k, "source_len", options_.source_len);
      check_length(to, k, "target_len", options_.target_len);
    }
    first_sample_.push_back(first_sample_.back() + from.num_sequences());
  }
}

std::pair<size_t, int64_t> PairSource::place_of(int64_t sample) const {
  if (sample < 0 || sample >= num_samples()) fail("data", "pair {} of {}", sample, num_samples());
  const auto next = std::upper_bound(first_sample_.begin(), first_sample_.end(), sample);
  const auto data_set = static_cast<size_t>(next - first_sample_.begin()) - 1;
  return {data_set, sample - first_sample_[data_set]};
}

int64_t PairSource::counted_targets(int64_t sample) const {
  const auto [data_set, sequence] = place_of(sample);
  return target_[data_set].sequence_length(sequence) + 1;
}

std::vector<std::string> PairSource::fingerprints() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < source_.size(); ++i) {
    all.push_back(source_[i].fingerprint());
    all.push_back(target_[i].fingerprint());
  }
  return all;
}

std::vector<const IndexedDataset*> PairSource::token_files() const {
  std::vector<const IndexedDataset*> all;
  for (const auto* side : {&source_, &target_})
    for (const IndexedDataset& data : *side) all.push_back(&data);
  return all;
}

void PairSource::check_samples(int64_t count) const {
  for (int64_t k = 0; k < std::min(count, num_samples()); ++k) {
    const auto [data_set, sequence] = place_of(k);
    read(source_[data_set], sequence);
    read(target_[data_set], sequence);
  }
}

std::vector<int64_t> PairSource::read(const IndexedDataset& data, int64_t sequence) const {
  std::vector<int64_t> tokens(static_cast<size_t>(data.sequence_length(sequence)));
  data.read(data.sequence_begin(sequence), tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t token = tokens[i];
    if (token < 0 || token >= options_.vocab_size)
      fail_user("data",
                "token {} at place {} of sequence {} of {} is outside the vocabulary; ids must be "
                "0 to {} (vocab_size {})",
                token, i, sequence, data.prefix(), options_.vocab_size - 1, options_.vocab_size);
    if (token == options_.pad_id || token == options_.bos_id || token == options_.eos_id)
      fail_user("data",
                "token {} at place {} of sequence {} of {} is data.pad_id, bos_id or eos_id, which "
                "are added when pairs are read; the files hold bare sequences",
                token, i, sequence, data.prefix());
  }
  return tokens;
}

MicroBatch PairSource::load(std::span<const SampleSlot> rows, const LoadOptions& options) const {
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t s = options_.target_len, s_source = options_.source_len;
  MicroBatch batch{.tokens = at::full({n, s}, options_.pad_id, at::kLong),
                   .targets = at::full({n, s}, options_.pad_id, at::kLong),
                   .weights = at::zeros({n, s}, options.dtype),
                   .source = at::full({n, s_source}, options_.pad_id, at::kLong),
                   .source_lengths = at::empty({n}, at::kLong)};
  for (int64_t row = 0; row < n; ++row) {
    const auto [data_set, sequence] = place_of(rows[row].sample);
    const auto from = read(source_[data_set], sequence);
    const auto to = read(target_[data_set], sequence);
    const auto length = static_cast<int64_t>(to.size());
    auto* source = batch.source.mutable_data_ptr<int64_t>() + row * s_source;
    *std::copy(from.begin(), from.end(), source) = options_.eos_id;
    batch.source_lengths[row].fill_(static_cast<int64_t>(from.size()) + 1);
    auto* tokens = batch.tokens.mutable_data_ptr<int64_t>() + row * s;
    *tokens = options_.bos_id;
    std::copy(to.begin(), to.end(), tokens + 1);
    auto* targets = batch.targets.mutable_data_ptr<int64_t>() + row * s;
    *std::copy(to.begin(), to.end(), targets) = options_.eos_id;
    if (rows[row].counts) batch.weights[row].narrow(0, 0, length + 1).fill_(options.target_weight);
  }
  return batch;
}

}  // namespace tessera

#include "data/token_stream.h"

#include <algorithm>

#include "base/error.h"
#include "data/indexed_dataset.h"

namespace tessera {

TokenStream::TokenStream(const std::vector<std::string>& prefixes, int64_t seq_len)
    : seq_len_(seq_len) {
  if (prefixes.empty())
    fail_user("data", "no data: at least one prefix of a .bin/.idx pair is needed");
  if (seq_len < 1) fail_user("data", "seq_len {}; it must be at least 1", seq_len);
  first_token_.push_back(0);
  for (const std::string& prefix : prefixes) {
    datasets_.emplace_back(prefix);
    first_token_.push_back(first_token_.back() + datasets_.back().num_tokens());
  }
  if (num_samples() < 1) {
    fail_user("data",
              "{} tokens in {} are too few: one sample of seq_len {} takes {} (inputs and targets "
              "shifted by one)",
              num_tokens(),
              prefixes.size() == 1
                  ? prefixes[0]
                  : fmt::format("{} prefixes from {}", prefixes.size(), prefixes[0]),
              seq_len, seq_len + 1);
  }
}

int64_t TokenStream::num_tokens() const {
  return first_token_.back();
}

int64_t TokenStream::num_samples() const {
  return (num_tokens() - 1) / seq_len_;
}

std::vector<const IndexedDataset*> TokenStream::files() const {
  std::vector<const IndexedDataset*> all;
  for (const IndexedDataset& data : datasets_) all.push_back(&data);
  return all;
}

std::vector<std::string> TokenStream::fingerprints() const {
  std::vector<std::string> all;
  for (const IndexedDataset& data : datasets_) all.push_back(data.fingerprint());
  return all;
}

void TokenStream::check_samples(int64_t count, int64_t vocab_size) const {
  std::vector<int64_t> sample(static_cast<size_t>(seq_len_ + 1));
  for (int64_t k = 0; k < std::min(count, num_samples()); ++k) read_sample(k, vocab_size, sample);
}

void TokenStream::read_sample(int64_t sample, int64_t vocab_size, std::span<int64_t> out) const {
  if (sample < 0 || sample >= num_samples() || static_cast<int64_t>(out.size()) != seq_len_ + 1) {
    fail("data", "sample {} of {} into {} tokens; a sample has {}", sample, num_samples(),
         out.size(), seq_len_ + 1);
  }
  int64_t begin = sample * seq_len_;
  const auto next = std::upper_bound(first_token_.begin(), first_token_.end(), begin);
  auto file = static_cast<size_t>(next - first_token_.begin()) - 1;
  while (!out.empty()) {  // a sample may run over the end of a file into the next ones
    const IndexedDataset& data = datasets_[file];
    const int64_t inside = begin - first_token_[file];
    const int64_t n = std::min(data.num_tokens() - inside, static_cast<int64_t>(out.size()));
    const std::span<int64_t> part = out.first(n);
    data.read(inside, part);
    for (int64_t i = 0; i < n; ++i) {
      if (part[i] < 0 || part[i] >= vocab_size) {
        fail_user("data",
                  "token {} at offset {} of {} is outside the vocabulary; ids must be 0 to {} "
                  "(vocab_size {})",
                  part[i], inside + i, data.prefix(), vocab_size - 1, vocab_size);
      }
    }
    out = out.subspan(n);
    begin += n;
    ++file;
  }
}

}  // namespace tessera

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/indexed_dataset.h"

namespace tessera {

// Several prefixes in order, cut into samples: sample k is tokens [k*S, k*S + S] (S+1 of them) of
// the concatenated stream; a tail that does not fill a sample is dropped.
class TokenStream {
 public:
  // UserError with the numbers if there is not one whole sample.
  TokenStream(const std::vector<std::string>& prefixes, int64_t seq_len);

  int64_t num_samples() const;
  int64_t num_tokens() const;

  std::vector<const IndexedDataset*> files() const;

  // IndexedDataset::fingerprint() of every prefix, in their order.
  std::vector<std::string> fingerprints() const;

  // Reads samples [0, count) to find bad token ids before they are needed; errors as read_sample().
  void check_samples(int64_t count, int64_t vocab_size) const;

  // Writes the S+1 tokens of a sample. UserError naming the token, its position, the prefix and
  // vocab_size if an id is negative or not below vocab_size.
  void read_sample(int64_t sample, int64_t vocab_size, std::span<int64_t> out) const;

 private:
  std::vector<IndexedDataset> datasets_;
  std::vector<int64_t> first_token_;  // of each dataset in the stream, and the total at the end
  int64_t seq_len_;
};

}  // namespace tessera

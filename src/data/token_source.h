#pragma once

#include <string>
#include <vector>

#include "data/indexed_dataset.h"
#include "data/sample_source.h"
#include "data/token_stream.h"

namespace tessera {

// For language models: sample k of a TokenStream, S tokens and the S tokens that follow them, all
// of which count.
class TokenSource : public SampleSource {
 public:
  // Errors as TokenStream.
  TokenSource(const std::vector<std::string>& prefixes, int64_t seq_len, int64_t vocab_size);

  int64_t num_samples() const override { return stream_.num_samples(); }
  int64_t positions_per_sample() const override { return seq_len_; }
  int64_t counted_targets(int64_t) const override { return seq_len_; }
  std::vector<std::string> fingerprints() const override { return stream_.fingerprints(); }
  std::vector<const IndexedDataset*> token_files() const override { return stream_.files(); }
  void check_samples(int64_t count) const override;
  MicroBatch load(std::span<const SampleSlot> rows, const LoadOptions& options) const override;

 private:
  TokenStream stream_;
  int64_t seq_len_;
  int64_t vocab_size_;
};

}  // namespace tessera

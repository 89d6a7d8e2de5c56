#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/indexed_dataset.h"
#include "data/sample_source.h"

namespace tessera {

struct PairOptions {
  int64_t source_len;  // S': columns of the encoder's input
  int64_t target_len;  // S: columns of the decoder's input and of the targets
  int64_t pad_id;
  int64_t bos_id;
  int64_t eos_id;
  int64_t vocab_size;  // of both sides
};

// For encoder-decoders: sequence i of the source data set belongs to sequence i of the target data
// set. The files hold the bare sequences; begin, end and padding are added here:
//
//   source   s1 .. sn eos pad ..      n + 1 <= S'
//   tokens   bos t1 .. tm pad ..      m + 1 <= S
//   targets  t1 .. tm eos pad ..      these m + 1 count, padding weighs 0
//
// A pair that is longer is an error: nothing is cut.
class PairSource : public SampleSource {
 public:
  // UserError if the two sides differ in their number of data sets or of sequences, or a pair is
  // too long: all lengths are looked at.
  PairSource(const std::vector<std::string>& source, const std::vector<std::string>& target,
             const PairOptions& options);

  int64_t num_samples() const override { return first_sample_.back(); }
  int64_t positions_per_sample() const override {
    return options_.source_len + options_.target_len;
  }
  int64_t counted_targets(int64_t sample) const override;
  std::vector<std::string> fingerprints() const override;
  std::vector<const IndexedDataset*> token_files() const override;
  void check_samples(int64_t count) const override;
  MicroBatch load(std::span<const SampleSlot> rows, const LoadOptions& options) const override;

 private:
  // The data set that a sample lies in, and the number of its sequence there.
  std::pair<size_t, int64_t> place_of(int64_t sample) const;
  std::vector<int64_t> read(const IndexedDataset& data, int64_t sequence) const;

  PairOptions options_;
  std::vector<IndexedDataset> source_;
  std::vector<IndexedDataset> target_;
  std::vector<int64_t> first_sample_;  // of each data set, and the total at the end
};

}  // namespace tessera

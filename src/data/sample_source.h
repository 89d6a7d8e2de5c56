#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/sampler.h"
#include "parallel/micro_batch.h"

namespace tessera {

class IndexedDataset;

// How rows become a micro-batch.
struct LoadOptions {
  at::ScalarType dtype = at::kFloat;  // of weights and images: fp32, or fp64 in fp64 runs
  double target_weight = 1.0;         // of each target that counts
  // The number of the first of the rows among all rows of the run (MicroBatch::rows); random
  // changes of samples, such as flips, are a function of it. None: evaluation, nothing is changed.
  std::optional<int64_t> first_row = std::nullopt;
};

// Gives samples by number: all that the trainer knows of its data, whatever they are made of. Which
// samples a step takes and who loads them is not decided here (sampler.h, training/loop/batches.h).
// The content of a sample depends on its number, and in training on its place in the run, never on
// the mesh.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual int64_t num_samples() const = 0;

  // What a model computes for a sample, padding included: tokens, or 1 for an image. The unit of
  // `tokens` and `tokens_per_s` in the metrics.
  virtual int64_t positions_per_sample() const = 0;

  // Targets of a sample whose loss counts.
  virtual int64_t counted_targets(int64_t sample) const = 0;

  // A text for each data set that identifies its contents, whatever its path.
  virtual std::vector<std::string> fingerprints() const = 0;

  // The token files that the samples are made of; none for images.
  virtual std::vector<const IndexedDataset*> token_files() const { return {}; }

  // Reads samples [0, count) to find bad values before they are needed; errors as load().
  virtual void check_samples(int64_t count) const = 0;

  // Loads `rows` into a micro-batch, but for MicroBatch::rows, which is left undefined. Targets of
  // rows that do not count weigh 0. UserError that names data set, place, value and rule for a
  // value that no model could take.
  virtual MicroBatch load(std::span<const SampleSlot> rows, const LoadOptions& options) const = 0;
};

// The sum of counted_targets() over some samples.
int64_t counted_targets(const SampleSource& source, const std::vector<int64_t>& samples);

}  // namespace tessera

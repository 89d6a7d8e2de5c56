#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "data/data_file.h"
#include "data/sample_source.h"

namespace tessera {

struct ImageOptions {
  std::array<int64_t, 3> shape;  // channels, height, width that the model takes
  int64_t num_labels;
  // By channel, of values in [0, 1]: a value x of 0 to 255 becomes (x / 255 - mean) / std. Empty:
  // mean 0, std 1.
  std::vector<double> mean;
  std::vector<double> std;
  bool flip = false;  // mirror half of the images left to right, in training
  uint64_t seed = 0;  // decides which images are mirrored
};

// Classified images: safetensors files of `images` uint8 [N, C, H, W] and `labels` [N] of any
// integer type but U64; the samples of the files follow each other. A sample has one target, its
// label.
class ImageSource : public SampleSource {
 public:
  // UserError that names file, value and rule for a file that does not hold these tensors, images
  // of another shape than the model's, a label that is no class, or a mean or std of another number
  // of channels.
  ImageSource(const std::vector<std::string>& paths, ImageOptions options);

  int64_t num_samples() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t positions_per_sample() const override { return 1; }
  int64_t counted_targets(int64_t) const override { return 1; }
  std::vector<std::string> fingerprints() const override;
  void check_samples(int64_t) const override {}  // a label is all that could be wrong
  MicroBatch load(std::span<const SampleSlot> rows, const LoadOptions& options) const override;

 private:
  struct Part {
    DataFile file;
    int64_t images_begin;  // byte of the first image
    int64_t first;         // number of the first sample
    int64_t count;
  };

  void open(const std::string& path);
  void read_image(int64_t sample, std::span<std::byte> out) const;

  ImageOptions options_;
  std::vector<Part> parts_;
  std::vector<int64_t> labels_;
};

}  // namespace tessera

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/store/reader.h"

namespace tessera {

// Reads several checkpoints that have the same tensor, each from any mesh, side by side. For one
// thread; its buffers are 12 MiB for each checkpoint.
class SideBySide {
 public:
  // Errors as CheckpointReader.
  explicit SideBySide(const std::vector<std::filesystem::path>& step_dirs);

  const CheckpointReader& operator[](size_t i) const { return *readers_[i]; }

  // Gives `sink` the elements of one state of a tensor, in row-major order, some at a time:
  // `values` has a pointer per checkpoint to the same `numel` elements. fp64 holds all that
  // checkpoints store exactly.
  using Sink = std::function<void(const std::vector<const double*>& values, int64_t numel)>;
  void read(const TensorInfo& tensor, const std::string& state, const Sink& sink);

 private:
  std::vector<std::unique_ptr<CheckpointReader>> readers_;
  std::vector<std::vector<double>> buffers_;  // of all but the first, which streams
};

}  // namespace tessera

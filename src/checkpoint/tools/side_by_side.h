#pragma once

#include <cstdint>
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
  explicit SideBySide(const std::vector<std::shared_ptr<const StoredCheckpoint>>& checkpoints);

  // Gives `sink` the elements of one state of a tensor, in row-major order, some at a time:
  // `values` has a pointer per checkpoint to the same `numel` elements. fp64 holds all that
  // checkpoints store exactly.
  using Sink = std::function<void(const std::vector<const double*>& values, int64_t numel)>;
  void read(const TensorInfo& tensor, const std::string& state, const Sink& sink);

 private:
  std::vector<CheckpointReader> readers_;
  std::vector<std::vector<double>> buffers_;  // of all but the first, which streams
};

}  // namespace tessera

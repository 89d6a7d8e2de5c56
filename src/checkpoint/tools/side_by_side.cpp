#include "checkpoint/tools/side_by_side.h"

namespace tessera {

SideBySide::SideBySide(const std::vector<std::shared_ptr<const StoredCheckpoint>>& checkpoints)
    : readers_(checkpoints.begin(), checkpoints.end()), buffers_(checkpoints.size() - 1) {}

void SideBySide::read(const TensorInfo& tensor, const std::string& state, const Sink& sink) {
  BoxSlice part{whole_box(tensor.shape), 0, 0};
  std::vector<const double*> values(readers_.size());
  readers_[0].stream(tensor.name, state, Dtype::kF64, [&](const std::byte* data, int64_t bytes) {
    part.begin = part.end;
    part.end += bytes / static_cast<int64_t>(sizeof(double));
    values[0] = reinterpret_cast<const double*>(data);
    for (size_t i = 1; i < readers_.size(); ++i) {
      std::vector<double>& buffer = buffers_[i - 1];
      buffer.resize(static_cast<size_t>(part.numel()));
      Piece piece{tensor.name, state, part, Dtype::kF64};
      piece.data = reinterpret_cast<std::byte*>(buffer.data());
      readers_[i].read(piece);
      values[i] = buffer.data();
    }
    sink(values, part.numel());
  });
}

}  // namespace tessera

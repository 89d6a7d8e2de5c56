#include "checkpoint/store/reader.h"

// Reading a checkpoint of any mesh onto any other: the slice that is wanted is intersected with
// every stored piece of the tensor, and what they share is copied run by run. Pieces are read
// through one buffer of fixed size (pread, not mmap: mapped pages would count as memory of the
// process).

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "checkpoint/format/elements.h"

namespace tessera {
namespace {

constexpr int64_t kStreamBytes = int64_t{32} << 20;

void check_wanted(const Piece& piece, const std::vector<int64_t>& shape,
                  const std::filesystem::path& dir) {
  const Box& box = piece.slice.box;
  bool inside = box.shape.size() == shape.size() && box.offset.size() == shape.size();
  for (size_t d = 0; inside && d < shape.size(); ++d)
    inside = box.offset[d] >= 0 && box.shape[d] >= 0 && box.offset[d] + box.shape[d] <= shape[d];
  if (!inside || piece.slice.begin < 0 || piece.slice.begin > piece.slice.end ||
      piece.slice.end > box.numel())
    fail_user("checkpoint",
              "tensor '{}' has the shape [{}] in {}; elements {} to {} of the box at [{}] of shape "
              "[{}] are wanted",
              piece.tensor, fmt::join(shape, ", "), dir.string(), piece.slice.begin,
              piece.slice.end, fmt::join(box.offset, ", "), fmt::join(box.shape, ", "));
}

}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& step_dir)
    : CheckpointReader(StoredCheckpoint::open(step_dir)) {}

CheckpointReader::CheckpointReader(std::shared_ptr<const StoredCheckpoint> checkpoint)
    : checkpoint_(std::move(checkpoint)), blocks_(checkpoint_) {}

void CheckpointReader::read(const Piece& piece) {
  const auto pieces = checkpoint_->pieces(piece.tensor, piece.state);
  check_wanted(piece, checkpoint_->tensor(piece.tensor).shape, checkpoint_->dir());
  int64_t beyond = 0;
  for (const StoredPiece& stored : pieces)
    beyond += copy_shared(stored, piece.slice, piece.dtype, piece.data);
  blocks_.finish();
  check_range(piece.tensor, piece.state, beyond, piece.slice.numel(), piece.dtype);
}

void CheckpointReader::stream(
    const std::string& tensor, const std::string& state, Dtype dtype,
    const std::function<void(const std::byte* data, int64_t bytes)>& sink) {
  const auto pieces = checkpoint_->pieces(tensor, state);
  BoxSlice part{whole_box(checkpoint_->tensor(tensor).shape), 0, 0};
  const int64_t numel = part.box.numel();
  const int64_t step = kStreamBytes / dtype_size(dtype);
  std::vector<std::byte> data(static_cast<size_t>(std::min(step, numel) * dtype_size(dtype)));
  int64_t beyond = 0;
  for (; part.begin < numel; part.begin = part.end) {
    part.end = std::min(numel, part.begin + step);
    for (const StoredPiece& stored : pieces)
      beyond += copy_shared(stored, part, dtype, data.data());
    blocks_.finish();
    sink(data.data(), part.numel() * dtype_size(dtype));
  }
  check_range(tensor, state, beyond, numel, dtype);
}

int64_t CheckpointReader::copy_shared(const StoredPiece& piece, const BoxSlice& wanted, Dtype dtype,
                                      std::byte* to) {
  const BoxSlice slice = checkpoint_->index().slice(piece);
  const auto span = shared_span(slice, wanted);
  if (!span) return 0;
  int64_t beyond = 0;
  const int64_t from_size = dtype_size(piece.dtype), to_size = dtype_size(dtype);
  BlockReader::Part part;
  for_each_shared_run(slice, wanted, [&](const SharedRun& run) {
    for (int64_t done = 0; done < run.numel;) {
      const int64_t at = (run.a_pos + done) * from_size;
      if (!part.holds(at)) part = blocks_.read(piece, at, span->second * from_size);
      const int64_t numel = std::min(run.numel - done, (part.end - at) / from_size);
      beyond += convert_elements(part.data + (at - part.begin), piece.dtype,
                                 to + (run.b_pos + done) * to_size, dtype, numel);
      done += numel;
    }
  });
  return beyond;
}

// UserError if `beyond`, the number of values that would become infinite in `dtype`, is not 0.
void CheckpointReader::check_range(const std::string& tensor, const std::string& state,
                                   int64_t beyond, int64_t numel, Dtype dtype) const {
  if (beyond == 0) return;
  fail_user("checkpoint", "{}: tensor '{}', state '{}': {}; choose a dtype that holds them",
            checkpoint_->dir().string(), tensor, state, beyond_range(beyond, numel, dtype));
}

}  // namespace tessera

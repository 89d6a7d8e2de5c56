#include "checkpoint/format/coverage.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/error.h"

namespace tessera {
namespace {

std::string describe(const Box& box) {
  return fmt::format("box at [{}] of shape [{}]", fmt::join(box.offset, ", "),
                     fmt::join(box.shape, ", "));
}

bool overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (a.offset[d] >= b.offset[d] + b.shape[d] || b.offset[d] >= a.offset[d] + a.shape[d])
      return false;
  return true;
}

// One state of one tensor.
class Coverage {
 public:
  Coverage(const std::string& checkpoint, const Manifest& manifest, const PieceIndex& index,
           size_t tensor, size_t state)
      : checkpoint_(checkpoint),
        manifest_(manifest),
        index_(index),
        tensor_(manifest.tensors[tensor]),
        state_(manifest.states[state]),
        pieces_(index.of(static_cast<int64_t>(tensor), static_cast<int64_t>(state))) {}

  void check() const {
    const std::vector<std::string>& states = manifest_.states_of(tensor_);
    if (std::find(states.begin(), states.end(), state_) == states.end()) {
      if (pieces_.empty()) return;
      fail_damaged("checkpoint", "{}: {} holds it, and the manifest gives the tensor no such state",
                   what(), file_of(pieces_.front()));
    }
    check_dtypes();
    const int64_t numel = whole_box(tensor_.shape).numel();
    if (numel > 0 && pieces_.empty())
      fail_damaged("checkpoint", "{}: none of its {} elements are in any file", what(), numel);

    std::vector<const StoredPiece*> firsts;  // of each box
    int64_t covered = 0;
    for (size_t first = 0, last; first < pieces_.size(); first = last) {
      for (last = first; last < pieces_.size() && pieces_[last].box == pieces_[first].box;) ++last;
      check_box(pieces_[first]);
      check_intervals(pieces_.subspan(first, last - first));
      firsts.push_back(&pieces_[first]);
      covered += box_of(pieces_[first]).numel();
    }
    if (firsts.size() > 1) check_disjoint(std::move(firsts));
    if (covered != numel)
      fail_damaged("checkpoint", "{}: the files hold {} of its {} elements", what(), covered,
                   numel);
  }

 private:
  std::string what() const {
    return fmt::format("{}: tensor '{}', state '{}'", checkpoint_, tensor_.name, state_);
  }
  const std::string& file_of(const StoredPiece& piece) const {
    return manifest_.files[static_cast<size_t>(piece.file)].name;
  }
  const Box& box_of(const StoredPiece& piece) const {
    return index_.boxes()[static_cast<size_t>(piece.box)];
  }

  void check_dtypes() const {
    for (const StoredPiece& piece : pieces_)
      if (piece.dtype != pieces_.front().dtype)
        fail_damaged("checkpoint", "{}: stored as {} in {} and as {} in {}", what(),
                     dtype_name(pieces_.front().dtype), file_of(pieces_.front()),
                     dtype_name(piece.dtype), file_of(piece));
  }

  void check_box(const StoredPiece& piece) const {
    const Box& box = box_of(piece);
    bool inside = true;
    for (size_t d = 0; inside && d < tensor_.shape.size(); ++d)
      inside = box.shape[d] <= tensor_.shape[d] && box.offset[d] <= tensor_.shape[d] - box.shape[d];
    if (!inside)
      fail_damaged("checkpoint", "{}: {} in {} does not lie in the tensor's shape [{}]", what(),
                   describe(box), file_of(piece), fmt::join(tensor_.shape, ", "));
  }

  // The pieces of one box, in rising order.
  void check_intervals(std::span<const StoredPiece> pieces) const {
    int64_t cursor = 0;
    const StoredPiece* before = nullptr;
    const Box& box = box_of(pieces.front());
    for (const StoredPiece& piece : pieces) {
      if (piece.begin < cursor)
        fail_damaged("checkpoint", "{}: elements {} to {} of the {} are both in {} and in {}",
                     what(), piece.begin, std::min(cursor, piece.end), describe(box),
                     file_of(*before), file_of(piece));
      if (piece.begin > cursor) fail_missing(box, cursor, piece.begin);
      cursor = piece.end;
      before = &piece;
    }
    if (cursor != box.numel()) fail_missing(box, cursor, box.numel());
  }

  [[noreturn]] void fail_missing(const Box& box, int64_t begin, int64_t end) const {
    fail_damaged("checkpoint", "{}: elements {} to {} of the {} are in no file", what(), begin, end,
                 describe(box));
  }

  // Sweeps along the dim in which the boxes differ most: boxes of tensor parallelism are compared
  // with their neighbour only, so the cost is linear in their number.
  void check_disjoint(std::vector<const StoredPiece*> firsts) const {
    size_t along = 0, most = 0;
    for (size_t d = 0; d < tensor_.shape.size(); ++d) {
      std::set<int64_t> offsets;
      for (const StoredPiece* first : firsts) offsets.insert(box_of(*first).offset[d]);
      if (offsets.size() > most) {
        most = offsets.size();
        along = d;
      }
    }
    if (most == 0) {  // a scalar
      fail_damaged("checkpoint", "{}: it is both in {} and in {}", what(), file_of(*firsts[0]),
                   file_of(*firsts[1]));
    }
    const auto low = [&](const StoredPiece* first) { return box_of(*first).offset[along]; };
    std::sort(firsts.begin(), firsts.end(),
              [&](const StoredPiece* a, const StoredPiece* b) { return low(a) < low(b); });
    for (size_t i = 0; i < firsts.size(); ++i) {
      const Box& box = box_of(*firsts[i]);
      for (size_t j = i + 1;
           j < firsts.size() && low(firsts[j]) < low(firsts[i]) + box.shape[along]; ++j)
        if (const Box& other = box_of(*firsts[j]); overlap(box, other))
          fail_damaged("checkpoint", "{}: the {} in {} and the {} in {} overlap", what(),
                       describe(box), file_of(*firsts[i]), describe(other), file_of(*firsts[j]));
    }
  }

  const std::string& checkpoint_;
  const Manifest& manifest_;
  const PieceIndex& index_;
  const TensorInfo& tensor_;
  const std::string& state_;
  std::span<const StoredPiece> pieces_;
};

}  // namespace

void check_coverage(const std::string& checkpoint, const Manifest& manifest,
                    const PieceIndex& index) {
  for (size_t tensor = 0; tensor < manifest.tensors.size(); ++tensor)
    for (size_t state = 0; state < manifest.states.size(); ++state)
      Coverage(checkpoint, manifest, index, tensor, state).check();
}

}  // namespace tessera

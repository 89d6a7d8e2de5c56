#include "checkpoint/format/piece_index.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"

namespace tessera {

std::span<const StoredPiece> PieceIndex::of(int64_t tensor, int64_t state) const {
  const auto range = static_cast<size_t>(tensor * states_ + state);
  if (state >= states_ || range >= ends_.size()) return {};
  const auto begin = static_cast<size_t>(range == 0 ? 0 : ends_[range - 1]);
  return std::span(pieces_).subspan(begin, static_cast<size_t>(ends_[range]) - begin);
}

// Pieces are sorted, so those of a tensor and state follow each other.
void PieceIndex::find_ranges() {
  int32_t tensors = 0, states = 0;
  for (const StoredPiece& piece : pieces_) {
    tensors = std::max(tensors, piece.tensor + 1);
    states = std::max(states, piece.state + 1);
  }
  states_ = states;
  ends_.assign(static_cast<size_t>(tensors) * static_cast<size_t>(states), 0);
  for (const StoredPiece& piece : pieces_)
    ++ends_[static_cast<size_t>(piece.tensor * states_ + piece.state)];
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

bool PieceIndexBuilder::Less::operator()(const Box& a, const Box& b) const {
  return std::tie(a.offset, a.shape) < std::tie(b.offset, b.shape);
}

int32_t PieceIndexBuilder::number_of(const Box& box) {
  return boxes_.emplace(box, static_cast<int32_t>(boxes_.size())).first->second;
}

void PieceIndexBuilder::add(const Box& box, StoredPiece piece, std::span<const uint64_t> digests) {
  if (piece.begin == piece.end) return;
  if (std::ssize(digests) != (piece.bytes() - 1) / block_bytes_ + 1)
    fail("checkpoint", "a piece of {} bytes comes with {} digests of blocks of {} bytes",
         piece.bytes(), digests.size(), block_bytes_);
  piece.box = number_of(box);
  piece.first_block = std::ssize(digests_);
  pieces_.push_back(piece);
  digests_.insert(digests_.end(), digests.begin(), digests.end());
}

void PieceIndexBuilder::add(const PieceIndex& part, int32_t file) {
  if (part.block_bytes() != block_bytes_)
    fail("checkpoint", "blocks of {} bytes and of {} bytes come together", part.block_bytes(),
         block_bytes_);
  std::vector<int32_t> numbers;
  for (const Box& box : part.boxes()) numbers.push_back(number_of(box));
  const int64_t first = std::ssize(digests_);
  for (StoredPiece piece : part.pieces()) {
    piece.box = numbers[static_cast<size_t>(piece.box)];
    piece.file = file;
    piece.first_block += first;
    pieces_.push_back(piece);
  }
  digests_.insert(digests_.end(), part.digests().begin(), part.digests().end());
}

PieceIndex PieceIndexBuilder::finish() {
  PieceIndex index;
  index.block_bytes_ = block_bytes_;
  std::vector<int32_t> sorted(boxes_.size());  // by number of adding
  for (const auto& [box, number] : boxes_) {
    sorted[static_cast<size_t>(number)] = static_cast<int32_t>(index.boxes_.size());
    index.boxes_.push_back(box);
  }
  for (StoredPiece& piece : pieces_) piece.box = sorted[static_cast<size_t>(piece.box)];
  const auto key = [](const StoredPiece& piece) {
    return std::tie(piece.tensor, piece.state, piece.box, piece.begin, piece.end, piece.file,
                    piece.offset);
  };
  std::sort(pieces_.begin(), pieces_.end(),
            [&](const StoredPiece& a, const StoredPiece& b) { return key(a) < key(b); });
  index.digests_.reserve(digests_.size());
  for (StoredPiece& piece : pieces_) {
    const auto from = digests_.begin() + piece.first_block;
    piece.first_block = std::ssize(index.digests_);
    index.digests_.insert(index.digests_.end(), from, from + index.num_blocks(piece));
  }
  index.pieces_ = std::move(pieces_);
  index.find_ranges();
  return index;
}

}  // namespace tessera

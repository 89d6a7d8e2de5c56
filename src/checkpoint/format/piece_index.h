#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/box.h"
#include "base/dtype.h"
#include "checkpoint/format/manifest.h"

namespace tessera {

// The bytes that one digest of the format covers: small enough that a reader of a part of a piece
// hashes little besides, large enough that digests are a hundred-thousandth of the data.
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;

// In place of a block size where a piece has one digest, whatever its length (versions 1 and 2).
inline constexpr int64_t kWholePieces = INT64_MAX / 8 * 8;

// A stored piece: which elements of which tensor lie where. Names are numbers of rows here.
struct StoredPiece {
  int32_t tensor = 0;  // of the manifest's tensors
  int32_t state = 0;   // of the manifest's states
  int32_t file = 0;    // of the manifest's files
  int32_t box = 0;     // of PieceIndex::boxes()
  Dtype dtype = Dtype::kF32;
  int64_t begin = 0;  // elements [begin, end) of the box in row-major order
  int64_t end = 0;
  int64_t offset = 0;       // of its first byte in the file
  int64_t first_block = 0;  // of PieceIndex::digests()

  int64_t bytes() const { return (end - begin) * dtype_size(dtype); }
};

// The index of a checkpoint: every piece of every file, and the XXH3-64 of every block of a piece's
// bytes. Immutable, and plain arrays: of a model of 2,000 tensors on 1,024 ranks it has 600,000
// pieces.
class PieceIndex {
 public:
  // The pieces of a state of a tensor, by box and begin; none if the tensor lacks the state.
  std::span<const StoredPiece> of(int64_t tensor, int64_t state) const;
  // All of them, by tensor, state, box and begin.
  const std::vector<StoredPiece>& pieces() const { return pieces_; }
  const std::vector<Box>& boxes() const { return boxes_; }
  const std::vector<uint64_t>& digests() const { return digests_; }
  // A multiple of 8. The last block of a piece may be shorter.
  int64_t block_bytes() const { return block_bytes_; }

  BoxSlice slice(const StoredPiece& piece) const {
    return {boxes_[static_cast<size_t>(piece.box)], piece.begin, piece.end};
  }
  int64_t num_blocks(const StoredPiece& piece) const {
    return (piece.bytes() - 1) / block_bytes_ + 1;
  }

  // The index as a safetensors file of integer arrays (docs/checkpoint-format.md).
  std::string to_bytes() const;
  // The inverse. Nothing is allocated beyond what the bytes themselves take before it has been
  // checked; every number of a row lies in its table, every piece in its file. Whether pieces lie
  // in their tensors and cover them is check_coverage()'s to say. DamagedError that names `path`
  // and the row; UserError for a layout that this program does not know.
  static PieceIndex from_bytes(std::string_view bytes, const std::string& path,
                               const Manifest& manifest);

 private:
  friend class PieceIndexBuilder;
  void find_ranges();

  int64_t block_bytes_ = kBlockBytes;
  std::vector<Box> boxes_;
  std::vector<StoredPiece> pieces_;
  std::vector<uint64_t> digests_;
  std::vector<int64_t> ends_;  // by tensor x states + state: past the last of its pieces
  int64_t states_ = 0;
};

// Makes an index of pieces that come in any order.
class PieceIndexBuilder {
 public:
  explicit PieceIndexBuilder(int64_t block_bytes = kBlockBytes) : block_bytes_(block_bytes) {}

  // Of `piece` the members box and first_block are not read. `digests`: one for each of its blocks.
  // A piece without elements is left out.
  void add(const Box& box, StoredPiece piece, std::span<const uint64_t> digests);
  // All pieces of another index, as pieces of file number `file`.
  void add(const PieceIndex& part, int32_t file);
  PieceIndex finish();

 private:
  struct Less {
    bool operator()(const Box& a, const Box& b) const;
  };
  int32_t number_of(const Box& box);

  int64_t block_bytes_;
  std::map<Box, int32_t, Less> boxes_;
  std::vector<StoredPiece> pieces_;
  std::vector<uint64_t> digests_;
};

}  // namespace tessera

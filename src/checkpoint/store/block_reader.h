#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/files/files.h"
#include "base/xxh3.h"
#include "checkpoint/store/stored_checkpoint.h"

namespace tessera {

// Reads the data of a checkpoint's pieces by blocks, and checks each block's digest when it is read
// first. Keeps one buffer and a few open files; of one thread.
class BlockReader {
 public:
  explicit BlockReader(std::shared_ptr<const StoredCheckpoint> checkpoint);

  const StoredCheckpoint& checkpoint() const { return *checkpoint_; }

  // Part of a piece's bytes, in the buffer until the next call.
  struct Part {
    int64_t begin = 0;  // bytes from the piece's first
    int64_t end = 0;
    const std::byte* data = nullptr;  // of byte `begin`
    bool holds(int64_t byte) const { return begin <= byte && byte < end; }
  };

  // A part that holds byte `at` of the piece, and more, as far as the buffer goes, of bytes before
  // `limit`. A block that no digest has vouched for yet is read whole and checked. DamagedError
  // that names file, piece and bytes if it is not what was written. Of a block larger than the
  // buffer, which is read in parts, the check comes with the last one: the caller then goes through
  // it in rising order, and calls finish() before it relies on what it got.
  Part read(const StoredPiece& piece, int64_t at, int64_t limit);
  // Reads what is left of a block that was begun.
  void finish();

  // Called before each read of a few MiB; what it throws ends the reading.
  void set_each_part(std::function<void()> each_part) { each_part_ = std::move(each_part); }

  int64_t files_opened() const { return files_opened_; }
  int64_t bytes_read() const { return bytes_read_; }

 private:
  // Bytes [begin, end) of the piece into the buffer.
  Part fill(const StoredPiece& piece, int64_t begin, int64_t end);
  Part read_blocks(const StoredPiece& piece, int64_t first, int64_t limit);
  Part read_long_block(const StoredPiece& piece, int64_t block, int64_t at);
  Part hash_next();
  const File& open(int32_t file);
  char& verified(const StoredPiece& piece, int64_t block);
  // Bytes of a piece's block: where it begins and ends.
  std::pair<int64_t, int64_t> bounds(const StoredPiece& piece, int64_t block) const;
  void check(const StoredPiece& piece, int64_t block, uint64_t digest);

  // A block larger than the buffer, hashed as far as `done`.
  struct LongBlock {
    const StoredPiece* piece = nullptr;  // null: none is begun
    int64_t block = 0;
    int64_t done = 0;
    Xxh3 hash;
  };

  std::shared_ptr<const StoredCheckpoint> checkpoint_;
  std::vector<std::byte> buffer_;
  std::vector<std::pair<int32_t, File>> files_;  // the one that was used last comes last
  std::vector<char> verified_;                   // by block
  LongBlock long_;
  std::function<void()> each_part_ = [] {};
  int64_t files_opened_ = 0;
  int64_t bytes_read_ = 0;
};

}  // namespace tessera

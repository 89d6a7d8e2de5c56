#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/piece_index.h"
#include "checkpoint/format/table_numbers.h"

namespace tessera {

// What a committed step folder says of itself: its manifest and the index of its pieces. Never
// changes, so any number of readers (reader.h), each in a thread of its own, may share one.
class StoredCheckpoint {
 public:
  // Reads manifest and index, and checks both, the files' presence and sizes, and that the pieces
  // of every state cover every tensor exactly once; the data are left to whoever reads them.
  // DamagedError that names the folder, file and tensor otherwise, also where a file is missing;
  // UserError if the folder is, or if its format version is unknown. `late`: how long to wait for a
  // file before it is called missing, where another node may just have written it (late_file.h).
  static std::shared_ptr<const StoredCheckpoint> open(const std::filesystem::path& step_dir,
                                                      std::chrono::milliseconds late = {});

  // Of a manifest, as its text and what was read of it, and an index that have been checked.
  StoredCheckpoint(std::filesystem::path dir, std::string manifest_text, Manifest manifest,
                   PieceIndex index);
  StoredCheckpoint(const StoredCheckpoint&) = delete;
  StoredCheckpoint& operator=(const StoredCheckpoint&) = delete;

  const std::filesystem::path& dir() const { return dir_; }
  const std::string& manifest_text() const { return manifest_text_; }
  const Manifest& manifest() const { return manifest_; }
  const PieceIndex& index() const { return index_; }

  std::filesystem::path file(int32_t number) const {
    return dir_ / manifest_.files[static_cast<size_t>(number)].name;
  }
  // UserError if there is no such tensor, or no such state of it.
  std::span<const StoredPiece> pieces(const std::string& tensor, const std::string& state) const;
  const TensorInfo& tensor(const std::string& name) const;
  // The dtype in which a state of a tensor is stored. UserError if there is none.
  Dtype dtype(const std::string& tensor, const std::string& state) const;
  // TENSOR/STATE, for messages.
  std::string name(const StoredPiece& piece) const;

 private:
  std::filesystem::path dir_;
  std::string manifest_text_;
  Manifest manifest_;
  PieceIndex index_;
  TableNumbers numbers_;
};

// The pieces of each file of a checkpoint, in the order of their data. They point into its index.
using PiecesByFile = std::vector<std::vector<const StoredPiece*>>;
PiecesByFile pieces_by_file(const StoredCheckpoint& checkpoint);

// Reads file number `file` of a checkpoint, and checks every checksum, and that the file's own
// header says the same as the index. DamagedError that names file and piece. Memory: a fixed
// buffer. `each_part` is called before each few MiB; what it throws ends the reading.
void verify_file(
    const std::shared_ptr<const StoredCheckpoint>& checkpoint, const PiecesByFile& pieces,
    size_t file, const std::function<void()>& each_part = [] {});

}  // namespace tessera

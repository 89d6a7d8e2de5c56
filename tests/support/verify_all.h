#pragma once

#include <filesystem>

#include "checkpoint/store/stored_checkpoint.h"

namespace tessera {

// Reads all files of a step folder and checks every checksum. DamagedError that names the file and
// piece.
inline void verify_all(const std::filesystem::path& step_dir) {
  const auto checkpoint = StoredCheckpoint::open(step_dir);
  const PiecesByFile pieces = pieces_by_file(*checkpoint);
  for (size_t file = 0; file < pieces.size(); ++file) verify_file(checkpoint, pieces, file);
}

}  // namespace tessera

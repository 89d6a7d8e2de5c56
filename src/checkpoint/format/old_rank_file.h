#pragma once

#include <filesystem>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/piece_index.h"

namespace tessera {

// Checkpoints of versions 1 and 2 have no index: the __metadata__ of each file says under a piece's
// name "TENSOR/STATE" where it belongs, as JSON text:
//   {"offset": [..], "shape": [..], "interval": [begin, end], "xxh3": "16 hex digits"}
// (the box in the global tensor, the interval of its row-major order, the digest of all its bytes).
// Reads the headers of all files and makes the index of them. DamagedError if a size or a header's
// digest is not the manifest's, or if an entry is not a sound piece; UserError if the layout is one
// that this program does not know, and if a file is missing.
PieceIndex read_old_rank_files(const std::filesystem::path& step_dir, const Manifest& manifest);

}  // namespace tessera

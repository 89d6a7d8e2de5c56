#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/pieces.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/tool_options.h"

namespace tessera {

// A whole state of a tensor as one piece.
FilePiece whole_piece(const TensorInfo& tensor, const std::string& state, Dtype dtype);

// Appends the data of one piece.
using FillPiece = std::function<void(size_t piece, RankFileWriter& to)>;

// Writes pieces, no two of the same tensor and state in one file, as the files
// rank-00000.safetensors, ... of `step_dir`: file i holds the pieces from ends[i - 1] (0 for the
// first) up to ends[i]. Threads share the files; each calls `make_fill` once, and what that returns
// for one piece after another. Then writes their index, and names all in the manifest, whose
// tensors and states are there: it is ready to be written.
void write_pieces(const std::filesystem::path& step_dir, const std::vector<FilePiece>& pieces,
                  const std::vector<size_t>& ends, Manifest& manifest, const ToolOptions& tool,
                  const std::function<FillPiece()>& make_fill);

// The same with files of at most 1 GiB or one piece: what is made without a mesh is cut so.
void write_pieces(const std::filesystem::path& step_dir, const std::vector<FilePiece>& pieces,
                  Manifest& manifest, const ToolOptions& tool,
                  const std::function<FillPiece()>& make_fill);

}  // namespace tessera

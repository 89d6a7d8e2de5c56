#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/store/tool_options.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// The pieces that rank `rank` of the new mesh holds, in the order of its file; their dtype and data
// are not looked at.
using PiecesOfRank = std::function<std::vector<Piece>(int rank)>;

// Writes STEP_DIR anew as a run on another mesh would have written it: a file per rank with the
// pieces that `pieces_of` gives for the checkpoint's manifest, which depend on the model. All
// states keep their bits, and the manifest its fields but for `mesh` and the files; Hugging Face
// files that were carried along come too. Threads share the files. An existing step folder may be
// replaced, as by consolidate(). Returns notes for the user, a line each.
std::vector<std::string> reshard_step(
    const std::filesystem::path& step_dir, const std::filesystem::path& out, const MeshShape& mesh,
    const std::function<PiecesOfRank(const Manifest& manifest)>& pieces_of,
    const ToolOptions& tool = {});

}  // namespace tessera

#include "checkpoint/tools/reshard.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "checkpoint/format/own_part.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/huggingface/replaceable.h"
#include "checkpoint/store/reader.h"
#include "checkpoint/store/whole_folder.h"
#include "checkpoint/store/write_pieces.h"

namespace tessera {
namespace {

constexpr int kMostRanks = 65536;

void check_mesh(const MeshShape& mesh) {
  for (const int size : {mesh.dp_replicate, mesh.dp_shard, mesh.tp})
    if (size < 1 || size > kMostRanks || int64_t{mesh.dp_replicate} * mesh.dp_shard > kMostRanks ||
        int64_t{mesh.dp_replicate} * mesh.dp_shard * mesh.tp > kMostRanks)
      fail_user("checkpoint", "mesh {}x{}x{}; each size is from 1, and there are at most {} ranks",
                mesh.dp_replicate, mesh.dp_shard, mesh.tp, kMostRanks);
}

// The pieces of all ranks one after another, and where those of each rank end.
struct Layout {
  std::vector<FilePiece> pieces;
  std::vector<size_t> ends;
};

Layout make_layout(const StoredCheckpoint& checkpoint, const MeshShape& mesh,
                   const PiecesOfRank& pieces_of) {
  Layout layout;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    for (const Piece& piece : pieces_of(rank)) {
      FilePiece part{piece.tensor, piece.state, own_part(piece),
                     checkpoint.dtype(piece.tensor, piece.state)};
      if (part.slice.numel() > 0) layout.pieces.push_back(std::move(part));
    }
    layout.ends.push_back(layout.pieces.size());
  }
  return layout;
}

// Reads a piece some MiB at a time and appends it.
void copy_piece(CheckpointReader& reader, const FilePiece& piece, std::vector<std::byte>& buffer,
                RankFileWriter& writer) {
  const int64_t size = dtype_size(piece.dtype);
  const int64_t most = static_cast<int64_t>(buffer.size()) / size;
  Piece part{piece.tensor, piece.state, piece.slice, piece.dtype, buffer.data()};
  for (int64_t at = piece.slice.begin; at < piece.slice.end; at = part.slice.end) {
    part.slice.begin = at;
    part.slice.end = std::min(piece.slice.end, at + most);
    reader.read(part);
    writer.append(buffer.data(), part.slice.numel() * size);
  }
}

}  // namespace

std::vector<std::string> reshard_step(
    const std::filesystem::path& step_dir, const std::filesystem::path& out, const MeshShape& mesh,
    const std::function<PiecesOfRank(const Manifest& manifest)>& pieces_of,
    const ToolOptions& tool) {
  check_mesh(mesh);
  const auto checkpoint = StoredCheckpoint::open(step_dir);
  Manifest manifest = checkpoint->manifest();
  const Layout layout = make_layout(*checkpoint, mesh, pieces_of(manifest));
  manifest.mesh = {
      {"dp_replicate", mesh.dp_replicate}, {"dp_shard", mesh.dp_shard}, {"tp", mesh.tp}};

  WholeFolder folder(out, Replace::when(tool.replace, why_no_step_folder, {step_dir}));
  write_pieces(folder.partial(), layout.pieces, layout.ends, manifest, tool, [&]() -> FillPiece {
    struct Reading {
      explicit Reading(const std::shared_ptr<const StoredCheckpoint>& source) : reader(source) {}
      CheckpointReader reader;
      std::vector<std::byte> buffer = std::vector<std::byte>(size_t{4} << 20);
    };
    const auto reading = std::make_shared<Reading>(checkpoint);
    return [&, reading](size_t i, RankFileWriter& writer) {
      copy_piece(reading->reader, layout.pieces[i], reading->buffer, writer);
    };
  });
  if (const auto carried = find_hf_files(step_dir))
    copy_hf_files(*carried, folder.partial() / kHfFilesFolder);
  write_manifest(folder.partial(), manifest);
  StoredCheckpoint::open(folder.partial());  // checks that the pieces cover every tensor once
  folder.publish();
  return folder.notes();
}

}  // namespace tessera

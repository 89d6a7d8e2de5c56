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
  std::vector<Piece> pieces;        // as wanted from the reader, without data
  std::vector<StoredPiece> stored;  // the same as they are written
  std::vector<size_t> ends;
};

Layout make_layout(const CheckpointReader& reader, const MeshShape& mesh,
                   const PiecesOfRank& pieces_of) {
  Layout layout;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    for (Piece& piece : pieces_of(rank)) {
      piece.slice = own_part(piece);
      piece.dtype = reader.stored_dtype(piece.tensor, piece.state);
      if (piece.slice.numel() == 0) continue;
      StoredPiece stored;
      stored.key = piece_key(piece.tensor, piece.state);
      stored.slice = piece.slice;
      stored.dtype = piece.dtype;
      layout.stored.push_back(std::move(stored));
      layout.pieces.push_back(std::move(piece));
    }
    layout.ends.push_back(layout.pieces.size());
  }
  return layout;
}

// Reads a piece some MiB at a time and appends it.
void copy_piece(CheckpointReader& reader, const Piece& piece, std::vector<std::byte>& buffer,
                RankFileWriter& writer) {
  const int64_t size = dtype_size(piece.dtype);
  const int64_t most = static_cast<int64_t>(buffer.size()) / size;
  Piece part = piece;
  part.data = buffer.data();
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
  Manifest manifest;
  Layout layout;
  {
    const CheckpointReader reader(step_dir);
    manifest = reader.manifest();
    layout = make_layout(reader, mesh, pieces_of(manifest));
  }
  manifest.mesh = {
      {"dp_replicate", mesh.dp_replicate}, {"dp_shard", mesh.dp_shard}, {"tp", mesh.tp}};

  WholeFolder folder(out, Replace::when(tool.replace, why_no_step_folder, {step_dir}));
  manifest.files =
      write_pieces(folder.partial(), layout.stored, layout.ends, tool, [&]() -> FillPiece {
        struct Reading {
          explicit Reading(const std::filesystem::path& dir) : reader(dir) {}
          CheckpointReader reader;
          std::vector<std::byte> buffer = std::vector<std::byte>(size_t{4} << 20);
        };
        const auto reading = std::make_shared<Reading>(step_dir);
        return [&, reading](size_t i, RankFileWriter& writer) {
          copy_piece(reading->reader, layout.pieces[i], reading->buffer, writer);
        };
      });
  if (const auto carried = find_hf_files(step_dir))
    copy_hf_files(*carried, folder.partial() / kHfFilesFolder);
  write_manifest(folder.partial(), manifest);
  CheckpointReader check(folder.partial());  // the pieces cover every tensor once
  folder.publish();
  return folder.notes();
}

}  // namespace tessera

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/box.h"
#include "base/xxh3.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/piece_index.h"
#include "safetensors/writer.h"

namespace tessera {

// One rank's file of a checkpoint: a safetensors file with an entry "TENSOR/STATE" of shape [numel]
// per piece. Where a piece belongs and the digests of its blocks are in the index of pieces
// (piece_index.h); __metadata__ names this layout under "format".
inline constexpr const char* kRankFileFormat = "tessera-rank-file/2";

inline constexpr const char* kPieceIndexName = "pieces.safetensors";

// rank-00000.safetensors
std::string rank_file_name(int rank);
std::string piece_key(const std::string& tensor, const std::string& state);

// What a rank says of a piece that it will write.
struct FilePiece {
  std::string tensor;
  std::string state;
  BoxSlice slice;
  Dtype dtype = Dtype::kF32;

  int64_t bytes() const { return slice.numel() * dtype_size(dtype); }
};

// A file that was written: the manifest's entry, and the index of its pieces (their file number is
// 0). As a text it travels to the rank that writes the index of all files.
struct WrittenFile {
  ManifestFile file;
  PieceIndex pieces;

  std::string to_text() const;
};

// Writes a rank file in one pass; digests are taken as the data come.
class RankFileWriter {
 public:
  // `pieces`: in the order in which their data will come. Error for one that is of no tensor and
  // state in the tables of the manifest, of which nothing else is read.
  RankFileWriter(const std::filesystem::path& path, const Manifest& manifest,
                 const std::vector<FilePiece>& pieces);

  // The next bytes of the pieces' data, in the order given.
  void append(const void* data, int64_t bytes);
  // fsyncs and closes.
  WrittenFile finish();

 private:
  void end_block();

  std::string name_;
  std::vector<Box> boxes_;
  std::vector<StoredPiece> pieces_;
  std::vector<std::vector<uint64_t>> digests_;  // of each piece's blocks
  size_t current_ = 0;                          // the piece whose data come next
  int64_t received_ = 0;                        // bytes of it so far
  Xxh3 hash_;                                   // of the current block
  std::unique_ptr<SafetensorsWriter> writer_;
};

// Ends the writing of a step folder's data: `written` are the texts of its files, in the order of
// their numbers. Puts them into the manifest, writes the index of all their pieces into `folder`
// (with fsync), and names it in the manifest, which is then ready to be written.
void write_piece_index(const std::filesystem::path& folder, const std::vector<std::string>& written,
                       Manifest& manifest);

}  // namespace tessera

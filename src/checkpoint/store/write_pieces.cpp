#include "checkpoint/store/write_pieces.h"

#include "base/process/share_out.h"
#include "checkpoint/store/fill_files.h"

namespace tessera {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

}  // namespace

StoredPiece whole_piece(const TensorInfo& tensor, const std::string& state, Dtype dtype) {
  StoredPiece piece;
  piece.key = piece_key(tensor.name, state);
  piece.slice.box = whole_box(tensor.shape);
  piece.slice.end = piece.slice.box.numel();
  piece.dtype = dtype;
  return piece;
}

std::vector<ManifestFile> write_pieces(const std::filesystem::path& step_dir,
                                       const std::vector<StoredPiece>& pieces,
                                       const std::vector<size_t>& ends, const ToolOptions& tool,
                                       const std::function<FillPiece()>& make_fill) {
  int64_t bytes = 0;
  for (const StoredPiece& piece : pieces) bytes += piece.bytes();
  ByteProgress progress(bytes, tool.progress);
  std::vector<ManifestFile> files(ends.size());
  share_out(ends.size(), tool.threads, [&]() -> Worker {
    return [&, fill = make_fill()](size_t i) {
      const size_t first = i == 0 ? 0 : ends[i - 1];
      RankFileWriter writer(step_dir / rank_file_name(static_cast<int>(i)),
                            {pieces.begin() + static_cast<ptrdiff_t>(first),
                             pieces.begin() + static_cast<ptrdiff_t>(ends[i])});
      for (size_t k = first; k < ends[i]; ++k) {
        fill(k, writer);
        progress.add(pieces[k].bytes());
      }
      files[i] = writer.finish();
    };
  });
  return files;
}

std::vector<ManifestFile> write_pieces(const std::filesystem::path& step_dir,
                                       const std::vector<StoredPiece>& pieces,
                                       const ToolOptions& tool,
                                       const std::function<FillPiece()>& make_fill) {
  std::vector<int64_t> sizes;
  for (const StoredPiece& piece : pieces) sizes.push_back(piece.bytes());
  return write_pieces(step_dir, pieces, fill_files(sizes, kMaxFileBytes), tool, make_fill);
}

}  // namespace tessera

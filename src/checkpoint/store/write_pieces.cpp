#include "checkpoint/store/write_pieces.h"

#include "base/process/share_out.h"
#include "checkpoint/store/fill_files.h"

namespace tessera {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

}  // namespace

FilePiece whole_piece(const TensorInfo& tensor, const std::string& state, Dtype dtype) {
  const Box box = whole_box(tensor.shape);
  return {tensor.name, state, {box, 0, box.numel()}, dtype};
}

void write_pieces(const std::filesystem::path& step_dir, const std::vector<FilePiece>& pieces,
                  const std::vector<size_t>& ends, Manifest& manifest, const ToolOptions& tool,
                  const std::function<FillPiece()>& make_fill) {
  int64_t bytes = 0;
  for (const FilePiece& piece : pieces) bytes += piece.bytes();
  ByteProgress progress(bytes, tool.progress);
  std::vector<std::string> written(ends.size());
  share_out(ends.size(), tool.threads, [&]() -> Worker {
    return [&, fill = make_fill()](size_t i) {
      const size_t first = i == 0 ? 0 : ends[i - 1];
      RankFileWriter writer(step_dir / rank_file_name(static_cast<int>(i)), manifest,
                            {pieces.begin() + static_cast<ptrdiff_t>(first),
                             pieces.begin() + static_cast<ptrdiff_t>(ends[i])});
      for (size_t k = first; k < ends[i]; ++k) {
        fill(k, writer);
        progress.add(pieces[k].bytes());
      }
      written[i] = writer.finish().to_text();
    };
  });
  write_piece_index(step_dir, written, manifest);
}

void write_pieces(const std::filesystem::path& step_dir, const std::vector<FilePiece>& pieces,
                  Manifest& manifest, const ToolOptions& tool,
                  const std::function<FillPiece()>& make_fill) {
  std::vector<int64_t> sizes;
  for (const FilePiece& piece : pieces) sizes.push_back(piece.bytes());
  write_pieces(step_dir, pieces, fill_files(sizes, kMaxFileBytes), manifest, tool, make_fill);
}

}  // namespace tessera

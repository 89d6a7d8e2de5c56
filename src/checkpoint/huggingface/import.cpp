#include "checkpoint/huggingface/import.h"

#include <algorithm>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/huggingface/hf_source.h"
#include "checkpoint/store/whole_folder.h"

namespace tessera {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr int64_t kMaxFileBytes = int64_t{4} << 30;  // a larger model gets several files

StoredPiece whole_piece(const TensorInfo& info) {
  StoredPiece piece;
  piece.key = piece_key(info.name, kStateParam);
  piece.slice.box = whole_box(info.shape);
  piece.slice.end = piece.slice.box.numel();
  return piece;
}

// Writes one of our tensors in fp32, a chunk at a time; one that is stored transposed at once,
// since each of its rows is a little of every stored row.
void write_tensor(HuggingFaceSource& source, const HfPart& part, RankFileWriter& writer) {
  Piece piece;
  piece.tensor = part.info.name;
  piece.state = kStateParam;
  piece.slice.box = whole_box(part.info.shape);
  const int64_t numel = piece.slice.box.numel();
  const int64_t chunk = part.transposed ? numel : std::min(kChunkElements, numel);
  std::vector<float> values(static_cast<size_t>(chunk));
  piece.data = reinterpret_cast<std::byte*>(values.data());
  for (; piece.slice.begin < numel; piece.slice.begin = piece.slice.end) {
    piece.slice.end = std::min(numel, piece.slice.begin + chunk);
    source.read(piece);
    writer.append(values.data(), piece.slice.numel() * dtype_size(piece.dtype));
  }
}

ManifestFile write_file(HuggingFaceSource& source, const HfPart* first, const HfPart* last,
                        const std::filesystem::path& path) {
  std::vector<StoredPiece> pieces;
  for (const HfPart* part = first; part != last; ++part) pieces.push_back(whole_piece(part->info));
  RankFileWriter writer(path, std::move(pieces));
  for (const HfPart* part = first; part != last; ++part) write_tensor(source, *part, writer);
  return writer.finish();
}

}  // namespace

std::vector<std::string> import_hugging_face(
    const std::filesystem::path& hf_dir, const std::filesystem::path& step_dir,
    const std::function<HfModel(const nlohmann::json& config)>& recognize) {
  nlohmann::json config = read_hugging_face_config(hf_dir);
  const HfModel model = recognize(config);
  HuggingFaceSource source(hf_dir, std::move(config), model);
  source.check_tied_head(0, 1);

  Manifest manifest;
  manifest.states = {kStateParam};
  manifest.model = source.config();
  manifest.mesh = {{"dp_replicate", 1}, {"dp_shard", 1}, {"tp", 1}};
  manifest.writer = "tessera import";
  for (const HfPart& part : source.parts()) manifest.tensors.push_back(part.info);

  WholeFolder output(step_dir);
  const HfPart* const end = source.parts().data() + source.parts().size();
  for (const HfPart* first = source.parts().data(); first != end;) {
    int64_t bytes = 0;
    const HfPart* last = first;
    for (; last != end; ++last) {
      const int64_t more = whole_piece(last->info).bytes();
      if (last != first && more > kMaxFileBytes - bytes) break;
      bytes += more;
    }
    const auto number = static_cast<int>(manifest.files.size());
    manifest.files.push_back(
        write_file(source, first, last, output.partial() / rank_file_name(number)));
    first = last;
  }
  copy_hf_files(hf_dir, output.partial() / kHfFilesFolder);
  write_manifest(output.partial(), manifest);
  output.publish();
  std::vector<std::string> notes = source.notes();
  notes.insert(notes.end(), output.lacks().begin(), output.lacks().end());
  return notes;
}

}  // namespace tessera

#include "checkpoint/huggingface/import.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/huggingface/hf_source.h"
#include "checkpoint/huggingface/replaceable.h"
#include "checkpoint/store/whole_folder.h"
#include "checkpoint/store/write_pieces.h"

namespace tessera {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;

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

// Writes the tensors as the files of a step folder, and names these in the manifest. `open`: a
// source for one thread.
void write_files(const std::vector<HfPart>& parts,
                 const std::function<std::shared_ptr<HuggingFaceSource>()>& open,
                 const std::filesystem::path& step_dir, Manifest& manifest,
                 const ToolOptions& tool) {
  std::vector<FilePiece> pieces;
  for (const HfPart& part : parts)
    pieces.push_back(whole_piece(part.info, kStateParam, Dtype::kF32));
  std::mutex one_matrix;  // held by the thread that has a whole matrix in memory
  write_pieces(step_dir, pieces, manifest, tool, [&]() -> FillPiece {
    return [&, source = open()](size_t i, RankFileWriter& writer) {
      std::unique_lock lock(one_matrix, std::defer_lock);
      if (parts[i].transposed) lock.lock();
      write_tensor(*source, parts[i], writer);
    };
  });
}

}  // namespace

std::vector<std::string> import_hugging_face(
    const std::filesystem::path& hf_dir, const std::filesystem::path& step_dir,
    const std::function<HfModel(const nlohmann::json& config)>& recognize,
    const ToolOptions& tool) {
  const nlohmann::json config = read_hugging_face_config(hf_dir);
  const HfModel model = recognize(config);
  const HuggingFaceSource source(hf_dir, config, model);
  source.check_tied_head(0, 1);

  Manifest manifest;
  manifest.states = {kStateParam};
  manifest.model = source.config();
  manifest.mesh = {{"dp_replicate", 1}, {"dp_shard", 1}, {"tp", 1}};
  manifest.writer = "tessera import";
  for (const HfPart& part : source.parts()) manifest.tensors.push_back(part.info);

  WholeFolder output(step_dir, Replace::when(tool.replace, why_no_step_folder, {hf_dir}));
  const auto open = [&] { return std::make_shared<HuggingFaceSource>(hf_dir, config, model); };
  write_files(source.parts(), open, output.partial(), manifest, tool);
  copy_hf_files(hf_dir, output.partial() / kHfFilesFolder);
  write_manifest(output.partial(), manifest);
  output.publish();
  std::vector<std::string> notes = source.notes();
  notes.insert(notes.end(), output.notes().begin(), output.notes().end());
  return notes;
}

}  // namespace tessera

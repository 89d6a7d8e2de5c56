#include "checkpoint/format/rank_file.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/table_numbers.h"

namespace tessera {
namespace {

StoredPiece number(const FilePiece& piece, const TableNumbers& numbers) {
  const auto tensor = numbers.tensor(piece.tensor), state = numbers.state(piece.state);
  if (!tensor || !state)
    fail("checkpoint", "piece '{}' belongs to no tensor and state of the manifest",
         piece_key(piece.tensor, piece.state));
  StoredPiece stored;
  stored.tensor = *tensor;
  stored.state = *state;
  stored.dtype = piece.dtype;
  stored.begin = piece.slice.begin;
  stored.end = piece.slice.end;
  return stored;
}

}  // namespace

std::string rank_file_name(int rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

std::string piece_key(const std::string& tensor, const std::string& state) {
  return fmt::format("{}/{}", tensor, state);
}

// The entry in a line, then the bytes of the index.
std::string WrittenFile::to_text() const {
  return fmt::format("{} {} {}\n", file.name, file.size, file.header_xxh3) + pieces.to_bytes();
}

RankFileWriter::RankFileWriter(const std::filesystem::path& path, const Manifest& manifest,
                               const std::vector<FilePiece>& pieces)
    : name_(path.filename().string()) {
  const TableNumbers numbers(manifest);
  std::vector<TensorSpec> specs;
  for (const FilePiece& piece : pieces) {
    pieces_.push_back(number(piece, numbers));
    boxes_.push_back(piece.slice.box);
    specs.push_back({piece_key(piece.tensor, piece.state), piece.dtype, {piece.slice.numel()}});
  }
  digests_.resize(pieces_.size());
  writer_ = std::make_unique<SafetensorsWriter>(
      path, specs, std::map<std::string, std::string>{{"format", kRankFileFormat}});
  int64_t offset = writer_->data_begin();
  for (StoredPiece& piece : pieces_) {
    piece.offset = offset;
    offset += piece.bytes();
  }
}

void RankFileWriter::append(const void* data, int64_t bytes) {
  writer_->append(data, bytes);
  for (const auto* from = static_cast<const std::byte*>(data); bytes > 0;) {
    while (pieces_.at(current_).bytes() == 0) ++current_;
    const StoredPiece& piece = pieces_[current_];
    const int64_t part =
        std::min({bytes, piece.bytes() - received_, kBlockBytes - received_ % kBlockBytes});
    hash_.update(from, static_cast<size_t>(part));
    from += part;
    bytes -= part;
    received_ += part;
    if (received_ % kBlockBytes == 0 || received_ == piece.bytes()) end_block();
  }
}

void RankFileWriter::end_block() {
  digests_[current_].push_back(hash_.digest());
  hash_ = Xxh3();
  if (received_ < pieces_[current_].bytes()) return;
  received_ = 0;
  ++current_;
}

WrittenFile RankFileWriter::finish() {
  writer_->finish();
  PieceIndexBuilder index;
  for (size_t i = 0; i < pieces_.size(); ++i) index.add(boxes_[i], pieces_[i], digests_[i]);
  return {{name_, writer_->file_size(), writer_->header_xxh3()}, index.finish()};
}

void write_piece_index(const std::filesystem::path& folder, const std::vector<std::string>& written,
                       Manifest& manifest) {
  PieceIndexBuilder builder;
  manifest.files.clear();
  Manifest alone;  // with one of the files at a time
  alone.states = manifest.states;
  alone.tensors = manifest.tensors;
  for (const std::string& text : written) {
    const size_t line = text.find('\n');
    const size_t first = text.find(' '), second = text.find(' ', first + 1);
    ManifestFile file{text.substr(0, first), 0, text.substr(second + 1, line - second - 1)};
    std::from_chars(text.data() + first + 1, text.data() + second, file.size);
    alone.files = {file};
    builder.add(PieceIndex::from_bytes(std::string_view(text).substr(line + 1), file.name, alone),
                static_cast<int32_t>(manifest.files.size()));
    manifest.files.push_back(std::move(file));
  }
  const std::string bytes = builder.finish().to_bytes();
  File file = File::create(folder / kPieceIndexName);
  file.write_at(bytes.data(), std::ssize(bytes), 0);
  file.sync();
  file.close();
  manifest.index = {kPieceIndexName, std::ssize(bytes), xxh3_hex(bytes.data(), bytes.size())};
}

}  // namespace tessera

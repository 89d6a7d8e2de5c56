#include "checkpoint/format/rank_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text/json_text.h"
#include "safetensors/format.h"
#include "safetensors/reader.h"

namespace tessera {
namespace {

using nlohmann::json;

std::map<std::string, std::string> metadata_of(const std::vector<StoredPiece>& pieces) {
  std::map<std::string, std::string> metadata{{"format", kRankFileFormat}};
  for (const StoredPiece& piece : pieces) {
    nlohmann::ordered_json place;
    place["offset"] = piece.slice.box.offset;
    place["shape"] = piece.slice.box.shape;
    place["interval"] = {piece.slice.begin, piece.slice.end};
    place["xxh3"] = piece.xxh3;
    metadata[piece.key] = place.dump();
  }
  return metadata;
}

std::vector<int64_t> read_numbers(const json& place, const char* field, const std::string& what) {
  const auto found = place.find(field);
  if (found == place.end() || !found->is_array() || found->size() > 64)
    fail_damaged("checkpoint", "{}: '{}' is missing or not an array of at most 64 numbers", what,
                 field);
  std::vector<int64_t> numbers;
  for (const json& number : *found) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > uint64_t{1} << 62)
      fail_damaged("checkpoint", "{}: '{}' holds {}, the rule is whole numbers from 0 to 2^62",
                   what, field, number.dump());
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

// Where the piece belongs, from its metadata; the slice is sound in itself when this returns.
void read_place(const std::string& text, const std::string& what, StoredPiece& piece) {
  if (text.size() > 16384) fail_damaged("checkpoint", "{}: the metadata is too long", what);
  const json place = parse_json(text, what);
  if (!place.is_object()) fail_damaged("checkpoint", "{}: the metadata is not an object", what);
  Box& box = piece.slice.box;
  box.offset = read_numbers(place, "offset", what);
  box.shape = read_numbers(place, "shape", what);
  const std::vector<int64_t> interval = read_numbers(place, "interval", what);
  if (box.offset.size() != box.shape.size())
    fail_damaged("checkpoint", "{}: the box has an offset of {} dims and a shape of {}", what,
                 box.offset.size(), box.shape.size());
  const int64_t numel = checked_numel(box.shape, Dtype::kF64);
  if (numel < 0)
    fail_damaged("checkpoint", "{}: the box of shape [{}] is too large", what,
                 fmt::join(box.shape, ", "));
  if (interval.size() != 2 || interval[0] > interval[1] || interval[1] > numel)
    fail_damaged("checkpoint", "{}: the interval [{}] does not lie in a box of {} elements", what,
                 fmt::join(interval, ", "), numel);
  piece.slice.begin = interval[0];
  piece.slice.end = interval[1];
  const auto digest = place.find("xxh3");
  if (digest == place.end() || !digest->is_string() || !is_xxh3_hex(digest->get<std::string>()))
    fail_damaged("checkpoint", "{}: 'xxh3' is missing or not 16 hex digits", what);
  piece.xxh3 = digest->get<std::string>();
}

std::vector<StoredPiece> read_pieces(const File& file, const ManifestFile& listed) {
  const std::string path = file.path().string();
  if (file.size() != listed.size)
    fail_damaged("checkpoint", "{} has {} bytes, the manifest says {}; it is truncated or replaced",
                 path, file.size(), listed.size);
  const SafetensorsHeader header = read_safetensors_header(file);
  if (header.xxh3 != listed.header_xxh3)
    fail_damaged("checkpoint",
                 "{}: the header's checksum is {}, the manifest says {}; it is damaged", path,
                 header.xxh3, listed.header_xxh3);
  const auto format = header.metadata.find("format");
  if (format == header.metadata.end() || format->second != kRankFileFormat)
    fail_user("checkpoint", "{}: the format is '{}', this version reads '{}'", path,
              format == header.metadata.end() ? "" : format->second, kRankFileFormat);

  std::vector<StoredPiece> pieces;
  pieces.reserve(header.entries.size());
  for (const TensorEntry& entry : header.entries) {
    const std::string what = fmt::format("{}: piece '{}'", path, entry.name);
    const auto place = header.metadata.find(entry.name);
    if (place == header.metadata.end())
      fail_damaged("checkpoint", "{}: __metadata__ does not say where it belongs", what);
    StoredPiece piece;
    piece.key = entry.name;
    piece.dtype = entry.dtype;
    piece.file_offset = header.data_begin + entry.begin;
    read_place(place->second, what, piece);
    if (entry.shape.size() != 1 || entry.shape[0] != piece.slice.numel())
      fail_damaged("checkpoint", "{}: the shape is [{}], the interval holds {} elements", what,
                   fmt::join(entry.shape, ", "), piece.slice.numel());
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace

std::string rank_file_name(int rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

std::string piece_key(const std::string& tensor, const std::string& state) {
  return fmt::format("{}/{}", tensor, state);
}

RankFileWriter::RankFileWriter(const std::filesystem::path& path, std::vector<StoredPiece> pieces)
    : name_(path.filename().string()), pieces_(std::move(pieces)) {
  std::vector<TensorSpec> specs;
  for (StoredPiece& piece : pieces_) {
    piece.xxh3 = std::string(16, '0');  // keeps the place of the digest
    specs.push_back({piece.key, piece.dtype, {piece.slice.numel()}});
  }
  writer_ = std::make_unique<SafetensorsWriter>(path, specs, metadata_of(pieces_));
}

void RankFileWriter::append(const void* data, int64_t bytes) {
  writer_->append(data, bytes);
  for (const auto* from = static_cast<const std::byte*>(data); bytes > 0;) {
    StoredPiece& piece = pieces_.at(current_);
    const int64_t part = std::min(bytes, piece.bytes() - received_);
    hash_.update(from, static_cast<size_t>(part));
    from += part;
    bytes -= part;
    received_ += part;
    if (received_ == piece.bytes()) {
      piece.xxh3 = hash_.hex();
      hash_ = Xxh3();
      received_ = 0;
      ++current_;
    }
  }
}

ManifestFile RankFileWriter::finish() {
  for (StoredPiece& piece : pieces_)
    if (piece.bytes() == 0) piece.xxh3 = xxh3_hex(nullptr, 0);
  writer_->replace_metadata(metadata_of(pieces_));
  writer_->finish();
  return {name_, writer_->file_size(), writer_->header_xxh3()};
}

std::vector<StoredPiece> read_rank_file(const std::filesystem::path& step_dir,
                                        const ManifestFile& listed) {
  return read_pieces(File::open(step_dir / listed.name), listed);
}

void verify_rank_file(const std::filesystem::path& step_dir, const ManifestFile& listed,
                      const std::function<void()>& each_part) {
  const File file = File::open(step_dir / listed.name);
  std::vector<std::byte> buffer(size_t{4} << 20);
  for (const StoredPiece& piece : read_pieces(file, listed)) {
    Xxh3 hash;
    for (int64_t done = 0; done < piece.bytes();) {
      each_part();
      const int64_t part = std::min<int64_t>(piece.bytes() - done, std::ssize(buffer));
      file.read_at(buffer.data(), part, piece.file_offset + done);
      hash.update(buffer.data(), static_cast<size_t>(part));
      done += part;
    }
    if (const std::string found = hash.hex(); found != piece.xxh3)
      fail_checksum(file.path(), piece, found);
  }
}

void fail_checksum(const std::filesystem::path& file, const StoredPiece& piece,
                   const std::string& found) {
  fail_damaged("checkpoint",
               "{}: piece '{}' (bytes {} to {}): the checksum is {}, the file says {}; the data is "
               "damaged, use another checkpoint",
               file.string(), piece.key, piece.file_offset, piece.file_offset + piece.bytes(),
               found, piece.xxh3);
}

}  // namespace tessera

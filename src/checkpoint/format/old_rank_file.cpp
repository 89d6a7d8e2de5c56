#include "checkpoint/format/old_rank_file.h"

#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/files.h"
#include "base/text/json_text.h"
#include "base/xxh3.h"
#include "checkpoint/format/table_numbers.h"
#include "safetensors/format.h"
#include "safetensors/reader.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr const char* kOldRankFileFormat = "tessera-rank-file/1";

// What the metadata say of a piece.
struct Place {
  BoxSlice slice;
  uint64_t xxh3 = 0;
};

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

// The slice is sound in itself when this returns.
Place read_place(const std::string& text, const std::string& what) {
  if (text.size() > 16384) fail_damaged("checkpoint", "{}: the metadata is too long", what);
  const json fields = parse_json(text, what);
  if (!fields.is_object()) fail_damaged("checkpoint", "{}: the metadata is not an object", what);
  Place place;
  Box& box = place.slice.box;
  box.offset = read_numbers(fields, "offset", what);
  box.shape = read_numbers(fields, "shape", what);
  const std::vector<int64_t> interval = read_numbers(fields, "interval", what);
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
  place.slice.begin = interval[0];
  place.slice.end = interval[1];
  const auto digest = fields.find("xxh3");
  if (digest == fields.end() || !digest->is_string() || !is_xxh3_hex(digest->get<std::string>()))
    fail_damaged("checkpoint", "{}: 'xxh3' is missing or not 16 hex digits", what);
  const auto& hex = digest->get_ref<const std::string&>();
  std::from_chars(hex.data(), hex.data() + hex.size(), place.xxh3, 16);
  return place;
}

SafetensorsHeader read_header(const std::filesystem::path& path, const ManifestFile& listed) {
  const File file = File::open(path);
  if (file.size() != listed.size)
    fail_damaged("checkpoint", "{} has {} bytes, the manifest says {}; it is truncated or replaced",
                 path.string(), file.size(), listed.size);
  SafetensorsHeader header = read_safetensors_header(file);
  if (header.xxh3 != listed.header_xxh3)
    fail_damaged("checkpoint",
                 "{}: the header's checksum is {}, the manifest says {}; it is damaged",
                 path.string(), header.xxh3, listed.header_xxh3);
  const std::string& format = header.metadata["format"];
  if (format != kOldRankFileFormat)
    fail_user("checkpoint", "{}: the format is '{}', this version reads '{}'", path.string(),
              format, kOldRankFileFormat);
  return header;
}

// Adds the piece that an entry of a header is. `what` names it.
void add_piece(const SafetensorsHeader& header, const TensorEntry& entry, int32_t file,
               const Manifest& manifest, const TableNumbers& numbers, const std::string& what,
               PieceIndexBuilder& index) {
  const auto text = header.metadata.find(entry.name);
  if (text == header.metadata.end())
    fail_damaged("checkpoint", "{}: __metadata__ does not say where it belongs", what);
  const Place place = read_place(text->second, what);
  if (entry.shape.size() != 1 || entry.shape[0] != place.slice.numel())
    fail_damaged("checkpoint", "{}: the shape is [{}], the interval holds {} elements", what,
                 fmt::join(entry.shape, ", "), place.slice.numel());
  const size_t slash = entry.name.rfind('/');  // no name of a state has one
  const auto tensor = numbers.tensor(entry.name.substr(0, slash));
  const auto state =
      slash == std::string::npos ? std::nullopt : numbers.state(entry.name.substr(slash + 1));
  if (!tensor || !state)
    fail_damaged("checkpoint", "{} belongs to no tensor and state of the manifest", what);
  const TensorInfo& info = manifest.tensors[static_cast<size_t>(*tensor)];
  if (info.shape.size() != place.slice.box.shape.size())
    fail_damaged("checkpoint", "{}: the box has {} dims, the tensor {}", what,
                 place.slice.box.shape.size(), info.shape.size());
  StoredPiece piece;
  piece.tensor = *tensor;
  piece.state = *state;
  piece.file = file;
  piece.dtype = entry.dtype;
  piece.begin = place.slice.begin;
  piece.end = place.slice.end;
  piece.offset = header.data_begin + entry.begin;
  index.add(place.slice.box, piece, {&place.xxh3, 1});
}

}  // namespace

PieceIndex read_old_rank_files(const std::filesystem::path& step_dir, const Manifest& manifest) {
  const TableNumbers numbers(manifest);
  PieceIndexBuilder index(kWholePieces);
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const std::filesystem::path path = step_dir / manifest.files[i].name;
    const SafetensorsHeader header = read_header(path, manifest.files[i]);
    for (const TensorEntry& entry : header.entries)
      add_piece(header, entry, static_cast<int32_t>(i), manifest, numbers,
                fmt::format("{}: piece '{}'", path.string(), entry.name), index);
  }
  return index.finish();
}

}  // namespace tessera

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/text/json_text.h"
#include "checkpoint/format/piece_index.h"
#include "safetensors/format.h"
#include "safetensors/reader.h"
#include "safetensors/writer.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "tessera-pieces/1";

// The arrays of a file, while it is read.
class Arrays {
 public:
  Arrays(std::string_view bytes, const std::string& path)
      : bytes_(bytes), path_(path), header_(read_safetensors_header(bytes, path)) {}

  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // The elements of an array of one dim.
  template <typename T>
  std::vector<T> read(const char* name, Dtype dtype) const {
    const auto entry = std::find_if(header_.entries.begin(), header_.entries.end(),
                                    [&](const TensorEntry& other) { return other.name == name; });
    if (entry == header_.entries.end())
      fail_damaged("checkpoint", "{}: the array '{}' is missing", path_, name);
    if (entry->dtype != dtype || entry->shape.size() != 1)
      fail_damaged("checkpoint", "{}: the array '{}' is of {} and {} dims; the rule is {} and 1",
                   path_, name, dtype_name(entry->dtype), entry->shape.size(), dtype_name(dtype));
    std::vector<T> values(static_cast<size_t>(entry->shape[0]));
    if (!values.empty())
      std::memcpy(values.data(), bytes_.data() + header_.data_begin + entry->begin,
                  values.size() * sizeof(T));
    return values;
  }

  // An array with an element for each of `count` rows of another.
  template <typename T>
  std::vector<T> read(const char* name, Dtype dtype, size_t count) const {
    std::vector<T> values = read<T>(name, dtype);
    if (values.size() != count)
      fail_damaged("checkpoint", "{}: the array '{}' has {} elements, the rule is {}", path_, name,
                   values.size(), count);
    return values;
  }

 private:
  std::string_view bytes_;
  const std::string& path_;
  SafetensorsHeader header_;
};

std::string metadata_of(const Arrays& arrays, const char* name, const std::string& path) {
  const auto found = arrays.metadata().find(name);
  if (found == arrays.metadata().end())
    fail_damaged("checkpoint", "{}: __metadata__ lacks '{}'", path, name);
  return found->second;
}

int64_t read_block_bytes(const Arrays& arrays, const std::string& path) {
  const std::string text = metadata_of(arrays, "block_bytes", path);
  const json number = parse_json(text, path);
  if (!number.is_number_unsigned() || number.get<uint64_t>() > uint64_t{kWholePieces} ||
      number.get<uint64_t>() == 0 || number.get<uint64_t>() % 8 != 0)
    fail_damaged("checkpoint", "{}: block_bytes is {}; the rule is a multiple of 8", path, text);
  return number.get<int64_t>();
}

std::vector<Dtype> read_dtypes(const Arrays& arrays, const std::string& path) {
  const std::string text = metadata_of(arrays, "dtypes", path);
  const json names = parse_json(text, path);
  std::vector<Dtype> dtypes;
  for (const json& name : names.is_array() ? names : json::array({names})) {
    const auto dtype =
        name.is_string() ? dtype_from_name(name.get_ref<const std::string&>()) : std::nullopt;
    if (!dtype)
      fail_damaged("checkpoint", "{}: dtypes is {}; the rule is an array of dtypes", path, text);
    dtypes.push_back(*dtype);
  }
  return dtypes;
}

std::vector<Box> read_boxes(const Arrays& arrays, const std::string& path) {
  const auto dims = arrays.read<int32_t>("box_dims", Dtype::kI32);
  const auto offset = arrays.read<int64_t>("box_offset", Dtype::kI64);
  const auto shape = arrays.read<int64_t>("box_shape", Dtype::kI64, offset.size());
  std::vector<Box> boxes;
  boxes.reserve(dims.size());
  int64_t first = 0;
  for (const int32_t count : dims) {
    const std::string what = fmt::format("{}: box {}", path, boxes.size());
    if (count < 0 || count > 64 || count > std::ssize(offset) - first)
      fail_damaged("checkpoint", "{}: it has {} dims, of {} numbers that are left", what, count,
                   std::ssize(offset) - first);
    Box box{{offset.begin() + first, offset.begin() + first + count},
            {shape.begin() + first, shape.begin() + first + count}};
    const bool low = std::any_of(box.offset.begin(), box.offset.end(), [](int64_t at) {
      return at < 0 || at > std::numeric_limits<int64_t>::max() / 2;
    });
    if (low || checked_numel(box.shape, Dtype::kF64) < 0)
      fail_damaged("checkpoint", "{}: its offset or its shape is negative or too large", what);
    boxes.push_back(std::move(box));
    first += count;
  }
  if (first != std::ssize(offset))
    fail_damaged("checkpoint", "{}: the boxes have {} dims, box_offset holds {} numbers", path,
                 first, offset.size());
  return boxes;
}

// Whether the rows of the tables have room for the piece's numbers and its file for its bytes.
void check_piece(const StoredPiece& piece, const std::vector<Box>& boxes, const Manifest& manifest,
                 const std::string& path, size_t row) {
  const auto check = [&](const char* name, int32_t number, size_t count) {
    if (number < 0 || static_cast<size_t>(number) >= count)
      fail_damaged("checkpoint", "{}: piece {}: {} is {}; the rule is a number from 0 to below {}",
                   path, row, name, number, count);
  };
  check("tensor", piece.tensor, manifest.tensors.size());
  check("state", piece.state, manifest.states.size());
  check("file", piece.file, manifest.files.size());
  check("box", piece.box, boxes.size());
  const Box& box = boxes[static_cast<size_t>(piece.box)];
  const TensorInfo& tensor = manifest.tensors[static_cast<size_t>(piece.tensor)];
  if (box.shape.size() != tensor.shape.size())
    fail_damaged("checkpoint", "{}: piece {}: its box has {} dims, tensor '{}' has {}", path, row,
                 box.shape.size(), tensor.name, tensor.shape.size());
  if (piece.begin < 0 || piece.begin >= piece.end || piece.end > box.numel())
    fail_damaged("checkpoint",
                 "{}: piece {}: the interval [{}, {}] does not lie in a box of {} elements", path,
                 row, piece.begin, piece.end, box.numel());
  const ManifestFile& file = manifest.files[static_cast<size_t>(piece.file)];
  if (piece.offset < 0 || piece.bytes() > file.size || piece.offset > file.size - piece.bytes())
    fail_damaged("checkpoint", "{}: piece {}: {} bytes at {} do not lie in {}, which has {} bytes",
                 path, row, piece.bytes(), piece.offset, file.name, file.size);
}

// One array of the file to be: its row of the header and its bytes.
struct Column {
  TensorSpec spec;
  std::string bytes;
};

template <typename T, typename Rows, typename Value>
Column column(const char* name, Dtype dtype, const Rows& rows, Value value) {
  Column made{{name, dtype, {std::ssize(rows)}}, std::string(rows.size() * sizeof(T), '\0')};
  size_t at = 0;
  for (const auto& row : rows) {
    const T number = static_cast<T>(value(row));
    std::memcpy(made.bytes.data() + at, &number, sizeof(T));
    at += sizeof(T);
  }
  return made;
}

}  // namespace

std::string PieceIndex::to_bytes() const {
  std::vector<int64_t> offsets, shapes;
  for (const Box& box : boxes_) {
    offsets.insert(offsets.end(), box.offset.begin(), box.offset.end());
    shapes.insert(shapes.end(), box.shape.begin(), box.shape.end());
  }
  std::vector<Dtype> dtypes;
  json names = json::array();
  for (const StoredPiece& piece : pieces_) {
    if (std::find(dtypes.begin(), dtypes.end(), piece.dtype) != dtypes.end()) continue;
    dtypes.push_back(piece.dtype);
    names.push_back(dtype_name(piece.dtype));
  }
  const auto same = [](auto number) { return number; };
  using Row = const StoredPiece&;
  // The widest first, so that every array begins at a multiple of its elements' size.
  const Column columns[] = {
      column<int64_t>("begin", Dtype::kI64, pieces_, [](Row piece) { return piece.begin; }),
      column<int64_t>("end", Dtype::kI64, pieces_, [](Row piece) { return piece.end; }),
      column<int64_t>("offset", Dtype::kI64, pieces_, [](Row piece) { return piece.offset; }),
      column<uint64_t>("xxh3", Dtype::kU64, digests_, same),
      column<int64_t>("box_offset", Dtype::kI64, offsets, same),
      column<int64_t>("box_shape", Dtype::kI64, shapes, same),
      column<int32_t>("tensor", Dtype::kI32, pieces_, [](Row piece) { return piece.tensor; }),
      column<int32_t>("state", Dtype::kI32, pieces_, [](Row piece) { return piece.state; }),
      column<int32_t>("file", Dtype::kI32, pieces_, [](Row piece) { return piece.file; }),
      column<int32_t>("box", Dtype::kI32, pieces_, [](Row piece) { return piece.box; }),
      column<int32_t>("box_dims", Dtype::kI32, boxes_,
                      [](const Box& box) { return box.shape.size(); }),
      column<uint8_t>("dtype", Dtype::kU8, pieces_, [&](Row piece) {
        return std::find(dtypes.begin(), dtypes.end(), piece.dtype) - dtypes.begin();
      })};
  std::vector<TensorSpec> specs;
  size_t size = 0;
  for (const Column& made : columns) {
    specs.push_back(made.spec);
    size += made.bytes.size();
  }
  std::string bytes = safetensors_header("the index of pieces", specs,
                                         {{"format", kFormat},
                                          {"block_bytes", std::to_string(block_bytes_)},
                                          {"dtypes", names.dump()}});
  bytes.reserve(bytes.size() + size);
  for (const Column& made : columns) bytes += made.bytes;
  return bytes;
}

PieceIndex PieceIndex::from_bytes(std::string_view bytes, const std::string& path,
                                  const Manifest& manifest) {
  const Arrays arrays(bytes, path);
  if (const std::string format = metadata_of(arrays, "format", path); format != kFormat)
    fail_user("checkpoint", "{}: the format is '{}', this version reads '{}'", path, format,
              kFormat);
  PieceIndex index;
  index.block_bytes_ = read_block_bytes(arrays, path);
  const std::vector<Dtype> dtypes = read_dtypes(arrays, path);
  index.boxes_ = read_boxes(arrays, path);
  index.digests_ = arrays.read<uint64_t>("xxh3", Dtype::kU64);
  const auto tensor = arrays.read<int32_t>("tensor", Dtype::kI32);
  const size_t count = tensor.size();
  const auto state = arrays.read<int32_t>("state", Dtype::kI32, count);
  const auto file = arrays.read<int32_t>("file", Dtype::kI32, count);
  const auto box = arrays.read<int32_t>("box", Dtype::kI32, count);
  const auto dtype = arrays.read<uint8_t>("dtype", Dtype::kU8, count);
  const auto begin = arrays.read<int64_t>("begin", Dtype::kI64, count);
  const auto end = arrays.read<int64_t>("end", Dtype::kI64, count);
  const auto offset = arrays.read<int64_t>("offset", Dtype::kI64, count);

  index.pieces_.reserve(count);
  int64_t blocks = 0;
  for (size_t i = 0; i < count; ++i) {
    if (dtype[i] >= dtypes.size())
      fail_damaged("checkpoint", "{}: piece {}: dtype is {}, of {} dtypes", path, i, dtype[i],
                   dtypes.size());
    const StoredPiece piece{tensor[i], state[i], file[i],   box[i], dtypes[dtype[i]],
                            begin[i],  end[i],   offset[i], blocks};
    check_piece(piece, index.boxes_, manifest, path, i);
    const auto key = [](const StoredPiece& of) {
      return std::tie(of.tensor, of.state, of.box, of.begin);
    };
    if (i > 0 && key(piece) < key(index.pieces_.back()))
      fail_damaged("checkpoint", "{}: piece {} comes before piece {}; they must be sorted", path, i,
                   i - 1);
    const int64_t more = index.num_blocks(piece);
    if (more > std::ssize(index.digests_) - blocks)
      fail_damaged("checkpoint", "{}: piece {} has {} blocks, {} digests are left", path, i, more,
                   std::ssize(index.digests_) - blocks);
    blocks += more;
    index.pieces_.push_back(piece);
  }
  if (blocks != std::ssize(index.digests_))
    fail_damaged("checkpoint", "{}: the pieces have {} blocks, there are {} digests", path, blocks,
                 index.digests_.size());
  index.find_ranges();
  return index;
}

}  // namespace tessera

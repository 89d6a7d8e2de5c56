// The index of pieces by itself: what it says, its bytes, forged ones, and its size at scale.
#include "checkpoint/format/piece_index.h"

#include "base/xxh3.h"
#include "checkpoint/format/coverage.h"
#include "checkpoint_testing.h"
#include "safetensors/reader.h"

namespace tessera::testing {
namespace {

// Two tensors of two states in two files.
Manifest small_manifest() {
  Manifest manifest = test_manifest(1, {kStateParam, kStateExpAvg});
  manifest.tensors = {{"a", {4, 3}}, {"b", {5}}};
  manifest.files = {{"x", 1000, ""}, {"y", 1000, ""}};
  return manifest;
}

struct Row {
  Box box;
  StoredPiece piece;
};

Row row(int32_t tensor, int32_t state, int32_t file, Box box, int64_t begin, int64_t end,
        int64_t offset) {
  Row made{std::move(box), {}};
  made.piece.tensor = tensor;
  made.piece.state = state;
  made.piece.file = file;
  made.piece.begin = begin;
  made.piece.end = end;
  made.piece.offset = offset;
  return made;
}

// In no order.
std::vector<Row> small_rows() {
  const Box left{{0, 0}, {4, 1}}, right{{0, 1}, {4, 2}}, whole{{0}, {5}};
  return {row(1, 1, 1, whole, 0, 5, 300), row(0, 0, 1, right, 0, 8, 80),
          row(0, 0, 0, left, 0, 3, 100),  row(0, 0, 1, left, 3, 4, 76),
          row(1, 0, 0, whole, 2, 5, 112), row(1, 0, 0, whole, 0, 2, 124),
          row(0, 1, 0, left, 0, 4, 200),  row(0, 1, 1, right, 0, 8, 400)};
}

PieceIndex index_of(const std::vector<Row>& rows) {
  PieceIndexBuilder builder;
  uint64_t digest = 10;
  for (const Row& each : rows) builder.add(each.box, each.piece, std::vector{digest++});
  return builder.finish();
}

TEST(PieceIndexes, PiecesAreFoundByTensorAndState) {
  const PieceIndex index = index_of(small_rows());
  ASSERT_EQ(index.pieces().size(), 8U);
  const auto found = index.of(0, 0);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(index.slice(found[0]), (BoxSlice{{{0, 0}, {4, 1}}, 0, 3}));
  EXPECT_EQ(index.slice(found[1]), (BoxSlice{{{0, 0}, {4, 1}}, 3, 4}));
  EXPECT_EQ(index.slice(found[2]), (BoxSlice{{{0, 1}, {4, 2}}, 0, 8}));
  EXPECT_EQ(index.digests()[static_cast<size_t>(found[0].first_block)], 12U);
  EXPECT_EQ(index.digests()[static_cast<size_t>(found[2].first_block)], 11U);
  EXPECT_EQ(index.of(1, 0).size(), 2U);
  EXPECT_EQ(index.of(1, 1).size(), 1U);
  EXPECT_TRUE(index.of(0, 2).empty());
  EXPECT_TRUE(index.of(2, 0).empty());
  EXPECT_TRUE(PieceIndexBuilder().finish().of(0, 0).empty());
  check_coverage("c", small_manifest(), index);
}

TEST(PieceIndexes, BytesKeepEverything) {
  const PieceIndex index = index_of(small_rows());
  const std::string bytes = index.to_bytes();
  EXPECT_EQ(PieceIndex::from_bytes(bytes, "p", small_manifest()).to_bytes(), bytes);
  const std::string none = PieceIndexBuilder().finish().to_bytes();
  EXPECT_EQ(PieceIndex::from_bytes(none, "p", small_manifest()).to_bytes(), none);
}

TEST(PieceIndexes, PartsOfRanksMergeToTheSame) {
  std::vector<Row> of_x, of_y;
  for (const Row& each : small_rows()) (each.piece.file == 0 ? of_x : of_y).push_back(each);
  for (std::vector<Row>* rows : {&of_x, &of_y})
    for (Row& each : *rows) each.piece.file = 0;
  PieceIndexBuilder merged;
  merged.add(index_of(of_x), 0);
  merged.add(index_of(of_y), 1);
  const PieceIndex index = merged.finish();
  const PieceIndex wanted = index_of(small_rows());
  ASSERT_EQ(index.pieces().size(), wanted.pieces().size());
  for (size_t i = 0; i < index.pieces().size(); ++i) {
    EXPECT_EQ(index.pieces()[i].file, wanted.pieces()[i].file) << i;
    EXPECT_EQ(index.pieces()[i].offset, wanted.pieces()[i].offset) << i;
    EXPECT_EQ(index.slice(index.pieces()[i]), wanted.slice(wanted.pieces()[i])) << i;
  }
  check_coverage("c", small_manifest(), index);
}

TEST(PieceIndexes, APieceHasADigestForEachBlock) {
  const int64_t numel = kBlockBytes / 4 * 2 + 1;  // of 4 bytes: two blocks and a bit
  Row one = row(0, 0, 0, {{0}, {numel}}, 0, numel, 8);
  PieceIndexBuilder builder;
  EXPECT_THROW(builder.add(one.box, one.piece, std::vector<uint64_t>{1, 2}), Error);
  builder.add(one.box, one.piece, std::vector<uint64_t>{1, 2, 3});
  const PieceIndex index = builder.finish();
  EXPECT_EQ(index.num_blocks(index.pieces()[0]), 3);
  EXPECT_EQ(index.digests(), (std::vector<uint64_t>{1, 2, 3}));
}

// One array of the bytes with its elements changed by `edit`.
template <typename T>
std::string edited(std::string bytes, const std::string& array,
                   const std::function<void(T* elements)>& edit) {
  const SafetensorsHeader header = read_safetensors_header(bytes, "p");
  for (const TensorEntry& entry : header.entries) {
    if (entry.name != array) continue;
    char* data = bytes.data() + header.data_begin + entry.begin;
    std::vector<T> elements(static_cast<size_t>(entry.end - entry.begin) / sizeof(T));
    std::memcpy(elements.data(), data, elements.size() * sizeof(T));
    edit(elements.data());
    std::memcpy(data, elements.data(), elements.size() * sizeof(T));
    return bytes;
  }
  throw Error("no such array");
}

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  if (at == std::string::npos || from.size() != to.size()) throw Error("cannot replace " + from);
  return bytes.replace(at, from.size(), to);
}

TEST(PieceIndexes, ForgedNumbersAreNamed) {
  const std::string good = index_of(small_rows()).to_bytes();
  constexpr int64_t kHuge = INT64_MAX;
  const auto i32 = [&](const char* array, size_t at, int32_t value) {
    return edited<int32_t>(good, array, [&](int32_t* e) { e[at] = value; });
  };
  const auto i64 = [&](const char* array, size_t at, int64_t value) {
    return edited<int64_t>(good, array, [&](int64_t* e) { e[at] = value; });
  };
  const std::pair<std::string, const char*> cases[] = {
      {i32("tensor", 7, 2), "piece 7: tensor is 2; the rule is a number from 0 to below 2"},
      {i32("tensor", 0, -1), "piece 0: tensor is -1"},
      {i32("state", 7, 2), "piece 7: state is 2"},
      {i32("file", 3, 2), "piece 3: file is 2"},
      {i32("file", 3, -1), "piece 3: file is -1"},
      {i32("box", 3, 3), "piece 3: box is 3"},
      {i32("box", 3, INT32_MIN), "piece 3: box is -2147483648"},
      {i32("box", 0, 2), "piece 1 comes before piece 0; they must be sorted"},
      {i32("state", 0, 1), "piece 1 comes before piece 0; they must be sorted"},
      {i32("box_dims", 0, 3), "dims"},
      {i32("box_dims", 2, 65), "box 2: it has 65 dims"},
      {i32("box_dims", 0, -1), "box 0: it has -1 dims"},
      {i64("begin", 0, -1), "piece 0: the interval [-1, 3]"},
      {i64("end", 0, 0), "piece 0: the interval [0, 0]"},
      {i64("end", 0, kHuge), "does not lie in a box of 4 elements"},
      {i64("offset", 0, 989), "piece 0: 12 bytes at 989 do not lie in x, which has 1000 bytes"},
      {i64("offset", 0, -4), "12 bytes at -4"},
      {i64("offset", 0, kHuge), "bytes at 9223372036854775807"},
      {i64("box_shape", 0, kHuge), "box 0: its offset or its shape"},
      {i64("box_shape", 0, -4), "box 0: its offset or its shape"},
      {i64("box_offset", 0, -1), "box 0: its offset or its shape"},
      {i64("box_offset", 0, kHuge), "box 0: its offset or its shape"},
      {edited<uint8_t>(good, "dtype", [](uint8_t* e) { e[5] = 9; }),
       "piece 5: dtype is 9, of 1 dtypes"},
      {replaced(good, "[\\\"F32\\\"]", "[\\\"F33\\\"]"), "an array of dtypes"},
      {replaced(good, "\"block_bytes\":\"1048576\"", "\"block_bytes\":\"1048577\""),
       "a multiple of 8"},
      {replaced(good, "\"block_bytes\":\"1048576\"", "\"block_bytes\":\"      0\""),
       "a multiple of 8"},
      {replaced(good, "\"block_bytes\":\"1048576\"", "\"block_bytes\":\"     -8\""),
       "a multiple of 8"},
      {replaced(good, "\"block_bytes\":\"1048576\"", "\"block_bytes\":\"      8\""),
       "digests are left"},
      {replaced(good, "\"offset\"", "\"offs3t\""), "the array 'offset' is missing"},
      {replaced(good, "\"state\":{\"dtype\":\"I32\"", "\"state\":{\"dtype\":\"U32\""),
       "the array 'state' is of U32 and 1 dims; the rule is I32 and 1"},
  };
  for (const auto& [bytes, message] : cases) {
    const std::string error =
        user_error([&] { PieceIndex::from_bytes(bytes, "the path", small_manifest()); });
    EXPECT_TRUE(contains(error, message));
    EXPECT_TRUE(contains(error, "the path"));
  }
  EXPECT_TRUE(contains(user_error([&] {
                         PieceIndex::from_bytes(
                             replaced(good, "tessera-pieces/1", "tessera-pieces/2"), "p",
                             small_manifest());
                       }),
                       "the format is 'tessera-pieces/2', this version reads"));
}

// Arrays that do not belong together, of any size that the file has room for.
TEST(PieceIndexes, ForgedSizesAreRefused) {
  const std::string good = index_of(small_rows()).to_bytes();
  for (size_t size = 0; size < good.size(); size += 3) {
    const std::string error = user_error(
        [&] { PieceIndex::from_bytes(good.substr(0, size), "the path", small_manifest()); });
    EXPECT_TRUE(contains(error, "the path")) << size;
  }
  // A digest too few, for which another array gets one element more.
  std::string bytes = good;
  const SafetensorsHeader header = read_safetensors_header(bytes, "p");
  int64_t xxh3_end = 0;
  for (const TensorEntry& entry : header.entries)
    if (entry.name == "xxh3") xxh3_end = entry.end;
  const std::string old_end =
      fmt::format("\"shape\":[8],\"data_offsets\":[{},{}]", xxh3_end - 64, xxh3_end);
  ASSERT_NE(bytes.find(old_end), std::string::npos);
  bytes =
      replaced(bytes, old_end,
               fmt::format("\"shape\":[7],\"data_offsets\":[{},{}]", xxh3_end - 64, xxh3_end - 8));
  EXPECT_TRUE(
      contains(user_error([&] { PieceIndex::from_bytes(bytes, "p", small_manifest()); }), "hole"));
}

TEST(PieceIndexes, FlippedBytesNeverCrash) {
  const std::string good = index_of(small_rows()).to_bytes();
  for (size_t at = 0; at < good.size(); ++at)
    for (const int bit : {0, 3, 7}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      try {
        check_coverage("c", small_manifest(), PieceIndex::from_bytes(bad, "p", small_manifest()));
      } catch (const UserError&) {
      }
    }
}

// A state of a tensor that the manifest does not give it.
TEST(PieceIndexes, AStateTooManyIsDamage) {
  Manifest manifest = small_manifest();
  manifest.tensors[1].states = {kStateParam};
  EXPECT_TRUE(contains(user_error([&] { check_coverage("c", manifest, index_of(small_rows())); }),
                       "tensor 'b', state 'exp_avg': y holds it"));
}

// A model of 2,000 tensors in 200 flat buckets, each cut into 1,024 slices, three states.
struct Large {
  Manifest manifest;
  PieceIndex index;
};

Large make_large(int64_t ranks) {
  constexpr int64_t kBuckets = 200, kTensors = 10, kNumel = 1 << 20;
  Large made;
  made.manifest = test_manifest(1, kAllStates);
  made.manifest.tensors.clear();
  for (int64_t i = 0; i < kBuckets * kTensors; ++i)
    made.manifest.tensors.push_back({fmt::format("model.layers.{}.weight", i), {kNumel}});
  PieceIndexBuilder merged;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    PieceIndexBuilder part;
    int64_t offset = 8;
    const int64_t all = kTensors * kNumel;
    const int64_t begin = share(all, static_cast<int>(rank), static_cast<int>(ranks));
    const int64_t end = share(all, static_cast<int>(rank) + 1, static_cast<int>(ranks));
    for (int64_t bucket = 0; bucket < kBuckets; ++bucket)
      for (int32_t state = 0; state < 3; ++state)
        for (int64_t i = 0; i < kTensors; ++i) {
          StoredPiece piece;
          piece.tensor = static_cast<int32_t>(bucket * kTensors + i);
          piece.state = state;
          piece.begin = std::clamp(begin - i * kNumel, int64_t{0}, kNumel);
          piece.end = std::clamp(end - i * kNumel, int64_t{0}, kNumel);
          piece.offset = offset;
          offset += piece.bytes();
          part.add(whole_box({kNumel}), piece,
                   std::vector<uint64_t>(piece.bytes() == 0 ? 0 : 1, 7));
        }
    merged.add(part.finish(), static_cast<int32_t>(rank));
    made.manifest.files.push_back({rank_file_name(static_cast<int>(rank)), offset, ""});
  }
  made.index = merged.finish();
  return made;
}

TEST(PieceIndexes, AThousandFilesOfTwoThousandTensorsAreCoveredOnce) {
  const Large large = make_large(1024);
  EXPECT_EQ(large.index.pieces().size(), 619'200U);
  const std::string bytes = large.index.to_bytes();
  const PieceIndex read = PieceIndex::from_bytes(bytes, "p", large.manifest);
  check_coverage("c", large.manifest, read);
  EXPECT_LT(bytes.size(), 64 * read.pieces().size());
}

}  // namespace
}  // namespace tessera::testing

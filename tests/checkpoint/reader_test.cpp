#include "checkpoint/store/reader.h"

#include <cmath>
#include <thread>

#include "checkpoint/format/elements.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint_testing.h"
#include "old_format.h"
#include "parallel/comm/core/self_communicator.h"

namespace tessera::testing {
namespace {

class Readers : public Scratch {};

// Any mesh to any mesh, both moments and weights, every element compared.
TEST_F(Readers, AnyMeshToAnyMesh) {
  for (int shards = 1; shards <= 4; ++shards) {
    for (int tps = 1; tps <= 4; ++tps) {
      const int64_t step = shards * 10 + tps;
      CheckpointReader reader(save_on_mesh(dir_, step, shards, tps, kAllStates));
      EXPECT_EQ(reader.manifest().files.size(), static_cast<size_t>(shards * tps));
      for (int to_shards = 1; to_shards <= 4; ++to_shards)
        for (int to_tps = 1; to_tps <= 4; ++to_tps)
          for (int rank = 0; rank < to_shards * to_tps; ++rank)
            expect_rank_reads(reader, rank / to_tps, to_shards, rank % to_tps, to_tps, kAllStates);
      if (HasFailure()) FAIL() << "saved on " << shards << " x " << tps;
    }
  }
}

TEST_F(Readers, MoreRanksThanRows) {
  CheckpointReader reader(save_on_mesh(dir_, 1, 4, 1, kAllStates));
  for (int shard = 0; shard < 64; ++shard) expect_rank_reads(reader, shard, 64, 0, 1, kAllStates);
}

// Each byte is written once, replicas included, and ranks write about the same amount.
TEST_F(Readers, BytesAreWrittenOnceAndSpread) {
  const fs::path step = save_on_mesh(dir_, 1, 2, 3, kAllStates);
  int64_t elements = 0, bytes = 0, most = 0;
  for (const TensorInfo& tensor : test_tensors()) elements += whole_box(tensor.shape).numel();
  const auto checkpoint = StoredCheckpoint::open(step);
  for (int file = 0; file < 6; ++file) {
    int64_t of_file = 0;
    for (const StoredPiece& piece : pieces_of_file(*checkpoint, file)) of_file += piece.bytes();
    bytes += of_file;
    most = std::max(most, of_file);
  }
  EXPECT_EQ(bytes, elements * 3 * 4);
  EXPECT_LE(most, bytes * 13 / 60);  // a sixth would be even; the boxes are odd
}

TEST_F(Readers, StreamGivesTheWholeTensor) {
  CheckpointReader reader(save_on_mesh(dir_, 1, 3, 4, kAllStates));
  for (const TensorInfo& tensor : test_tensors()) {
    std::vector<double> values;
    reader.stream(tensor.name, kStateExpAvg, Dtype::kF64,
                  [&](const std::byte* data, int64_t bytes) {
                    const size_t before = values.size();
                    values.resize(before + static_cast<size_t>(bytes) / 8);
                    std::memcpy(values.data() + before, data, static_cast<size_t>(bytes));
                  });
    ASSERT_EQ(static_cast<int64_t>(values.size()), whole_box(tensor.shape).numel());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], test_value(tensor.name, kStateExpAvg, static_cast<int64_t>(i)));
  }
}

// Tensors larger than the buffers, split by columns, by rows and by intervals.
TEST_F(Readers, LargeTensorsStreamAndReadAcrossBufferBounds) {
  constexpr int64_t kRows = 3001, kColumns = 1501;  // 18 MB in fp32
  for (const int split_dim : {0, 1}) {
    const fs::path step = dir_ / ("step-0000000" + std::to_string(split_dim + 1));
    run_thread_ranks(4, [&](Communicator& world) {
      Box box = whole_box({kRows, kColumns});
      const auto d = static_cast<size_t>(split_dim);
      const int64_t whole = box.shape[d];
      box.offset[d] = share(whole, world.rank() % 2, 2);
      box.shape[d] = share(whole, world.rank() % 2 + 1, 2) - box.offset[d];
      BoxSlice slice{box, share(box.numel(), world.rank() / 2, 2),
                     share(box.numel(), world.rank() / 2 + 1, 2)};
      std::vector<float> values(static_cast<size_t>(slice.numel()));
      for (int64_t i = 0; i < slice.numel(); ++i)
        values[static_cast<size_t>(i)] =
            static_cast<float>(global_index(slice, {kRows, kColumns}, slice.begin + i));
      Manifest manifest = test_manifest(split_dim + 1, {kStateParam});
      manifest.tensors = {{"big", {kRows, kColumns}}};
      CheckpointManager(dir_, 0, world, nullptr)
          .save(manifest, {{"big", kStateParam, slice, Dtype::kF32,
                            reinterpret_cast<std::byte*>(values.data())}});
    });
    CheckpointReader reader(step);
    int64_t next = 0;
    reader.stream("big", kStateParam, Dtype::kF32, [&](const std::byte* data, int64_t bytes) {
      for (int64_t i = 0; i < bytes / 4; ++i, ++next) {
        float value;
        std::memcpy(&value, data + i * 4, 4);
        ASSERT_EQ(value, static_cast<float>(next));
      }
    });
    EXPECT_EQ(next, kRows * kColumns);

    for (CheckpointReader* other : {&reader}) {  // after streaming, and again below with a new one
      Box box{{17, 100}, {2800, 700}};
      std::vector<float> part(static_cast<size_t>(box.numel()) - 5);
      Piece piece{"big",
                  kStateParam,
                  {box, 5, box.numel()},
                  Dtype::kF32,
                  reinterpret_cast<std::byte*>(part.data())};
      CheckpointReader fresh(step);
      for (CheckpointReader* from : {other, &fresh}) {
        std::fill(part.begin(), part.end(), -1.f);
        from->read(piece);
        for (int64_t i = 5; i < box.numel(); ++i)
          ASSERT_EQ(part[static_cast<size_t>(i - 5)],
                    static_cast<float>(global_index(piece.slice, {kRows, kColumns}, i)));
      }
    }
  }
}

TEST_F(Readers, DtypesConvert) {
  CheckpointReader reader(save_on_mesh(dir_, 1, 2, 1, {kStateParam}));
  std::vector<uint16_t> halves(35);
  const Piece piece{"embed",
                    kStateParam,
                    {whole_box({7, 5}), 0, 35},
                    Dtype::kBF16,
                    reinterpret_cast<std::byte*>(halves.data())};
  reader.read(piece);
  for (size_t i = 0; i < 35; ++i) {
    const float value = test_value("embed", kStateParam, static_cast<int64_t>(i));
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    EXPECT_EQ(halves[i], bits >> 16);  // small whole numbers are exact in bf16
  }
  EXPECT_EQ(reader.stored_dtype("embed", kStateParam), Dtype::kF32);
}

TEST(Elements, RoundToNearestEven) {
  const float values[] = {1.00390625f, 1.01171875f, 3.4e38f, -0.0f, 1e-40f, INFINITY, 65520.f};
  uint16_t bf16[7], f16[7];
  // 3.4e38 is beyond bf16; an infinity that was there before does not count.
  EXPECT_EQ(convert_elements(reinterpret_cast<const std::byte*>(values), Dtype::kF32,
                             reinterpret_cast<std::byte*>(bf16), Dtype::kBF16, 7),
            1);
  EXPECT_EQ(bf16[0], 0x3f80);  // halfway between 1.0 and 1.0078125: to even
  EXPECT_EQ(bf16[1], 0x3f82);
  EXPECT_EQ(bf16[2], 0x7f80);
  EXPECT_EQ(bf16[3], 0x8000);
  EXPECT_EQ(bf16[5], 0x7f80);
  EXPECT_EQ(convert_elements(reinterpret_cast<const std::byte*>(values), Dtype::kF32,
                             reinterpret_cast<std::byte*>(f16), Dtype::kF16, 7),
            2);
  EXPECT_EQ(f16[0], 0x3c04);
  EXPECT_EQ(f16[6], 0x7c00);  // above the largest half by half a step
  double back[7];
  EXPECT_EQ(convert_elements(reinterpret_cast<const std::byte*>(values), Dtype::kF32,
                             reinterpret_cast<std::byte*>(back), Dtype::kF64, 7),
            0);
  EXPECT_EQ(back[4], static_cast<double>(values[4]));
  EXPECT_FALSE(can_convert(Dtype::kI64, Dtype::kF32));
  EXPECT_TRUE(can_convert(Dtype::kI64, Dtype::kI64));
  EXPECT_THROW(convert_elements(nullptr, Dtype::kI64, nullptr, Dtype::kF32, 1), Error);
}

TEST_F(Readers, WrongRequestsNameTheTensorAndBothShapes) {
  CheckpointReader reader(save_on_mesh(dir_, 1, 1, 1, {kStateParam}));
  float value = 0;
  Piece piece{"embed",
              kStateParam,
              {whole_box({8, 5}), 0, 1},
              Dtype::kF32,
              reinterpret_cast<std::byte*>(&value)};
  const std::string message = user_error([&] { reader.read(piece); });
  EXPECT_TRUE(contains(message, "'embed' has the shape [7, 5]"));
  EXPECT_TRUE(contains(message, "shape [8, 5]"));
  piece.tensor = "other";
  EXPECT_TRUE(contains(user_error([&] { reader.read(piece); }), "'other'"));
  piece.tensor = "embed";
  piece.state = "momentum";
  EXPECT_TRUE(contains(user_error([&] { reader.read(piece); }), "no state 'momentum'"));
}

// Damage of every kind to a checkpoint of several files.
class Damaged : public Readers {
 protected:
  Damaged() : step_(save_on_mesh(dir_, 1, 2, 2, kAllStates)) {}

  std::string open_error() {
    return user_error([&] { CheckpointReader reader(step_); });
  }
  struct Row {
    std::string key;  // TENSOR/STATE
    Box box;
    StoredPiece piece;
  };
  // Writes the index with rows changed by `edit` and names it in the manifest as if it were right.
  void rewrite(const std::function<void(std::vector<Row>&)>& edit) {
    const auto checkpoint = StoredCheckpoint::open(step_);
    std::vector<Row> rows;
    for (const StoredPiece& piece : checkpoint->index().pieces())
      rows.push_back({checkpoint->name(piece), checkpoint->index().slice(piece).box, piece});
    edit(rows);
    PieceIndexBuilder index;
    for (const Row& row : rows) index.add(row.box, row.piece, std::vector<uint64_t>{0});
    const std::string bytes = index.finish().to_bytes();
    spit(step_ / kPieceIndexName, bytes);
    Manifest manifest = checkpoint->manifest();
    manifest.index = {kPieceIndexName, std::ssize(bytes), xxh3_hex(bytes.data(), bytes.size())};
    write_manifest(step_, manifest);
  }
  fs::path step_;
};

TEST_F(Damaged, FilesMissingShortAndChanged) {
  const fs::path file = step_ / rank_file_name(2);
  const std::string good = slurp(file);
  fs::remove(file);
  EXPECT_TRUE(contains(open_error(), "rank-00002.safetensors"));
  spit(file, good.substr(0, good.size() - 1));
  EXPECT_TRUE(contains(open_error(), fmt::format("has {} bytes, the manifest says {}",
                                                 good.size() - 1, good.size())));
  // What is inside a file is found when it is read.
  const auto verify_error = [&] { return user_error([&] { verify_all(step_); }); };
  std::string header = good;
  header[good.find("/param")] ^= 2;
  spit(file, header);
  EXPECT_TRUE(contains(verify_error(), "rank-00002.safetensors: the header's checksum"));
  std::string other = slurp(step_ / rank_file_name(1));
  other.resize(good.size());
  spit(file, other);
  EXPECT_TRUE(contains(verify_error(), "rank-00002.safetensors"));
  spit(file, good);
  EXPECT_EQ(open_error(), "no error");
}

TEST_F(Damaged, EveryFlippedByteIsFound) {
  const fs::path file = step_ / rank_file_name(3);
  const std::string good = slurp(file);
  for (size_t at = 0; at < good.size(); at += 7) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    spit(file, bad);
    const std::string message = user_error([&] { verify_all(step_); });
    EXPECT_TRUE(contains(message, "rank-00003.safetensors")) << at;
  }
}

TEST_F(Damaged, ReadingAndStreamingCheckWhatTheyTouch) {
  const auto checkpoint = StoredCheckpoint::open(step_);
  const StoredPiece piece = pieces_of_file(*checkpoint, 0).front();
  const std::string key = checkpoint->name(piece);
  const fs::path file = step_ / rank_file_name(0);
  std::string text = slurp(file);
  text[static_cast<size_t>(piece.offset + piece.bytes()) - 1] ^= 1;
  spit(file, text);
  const std::string tensor = key.substr(0, key.rfind('/'));
  const std::string state = key.substr(key.rfind('/') + 1);

  CheckpointReader reader(step_);
  const auto part = [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(end - begin));
    BoxSlice slice = checkpoint->index().slice(piece);
    slice.begin = begin;
    slice.end = end;
    reader.read({tensor, state, slice, Dtype::kF32, reinterpret_cast<std::byte*>(values.data())});
  };
  // Its first element only; the damage is in its last.
  const std::string message = user_error([&] { part(piece.begin, piece.begin + 1); });
  EXPECT_TRUE(contains(message, "rank-00000.safetensors: piece '" + key + "'"));
  EXPECT_TRUE(contains(message, "checksum"));
  CheckpointReader streaming(step_);
  EXPECT_TRUE(
      contains(user_error([&] { streaming.stream(tensor, state, Dtype::kF32, [](auto, auto) {}); }),
               "checksum"));
}

TEST_F(Damaged, OverlapsAndHolesBetweenFilesAreErrors) {
  const auto find = [](std::vector<Row>& rows, const char* key, int file) -> Row& {
    for (Row& row : rows)
      if (row.key == key && row.piece.file == file) return row;
    throw Error("no such piece");
  };
  const auto error_after = [&](int shards, const std::function<void(std::vector<Row>&)>& edit) {
    fs::remove_all(step_);
    save_on_mesh(dir_, 1, shards, 2, kAllStates);
    rewrite(edit);
    return open_error();
  };
  std::string error =
      error_after(2, [&](auto& rows) { find(rows, "embed/param", 0).piece.end -= 1; });
  EXPECT_TRUE(contains(error, "tensor 'embed', state 'param': elements"));
  EXPECT_TRUE(contains(error, "in no file"));
  error = error_after(2, [&](auto& rows) { find(rows, "o.weight/exp_avg", 2).piece.begin -= 1; });
  EXPECT_TRUE(contains(error, "tensor 'o.weight', state 'exp_avg': elements"));
  EXPECT_TRUE(contains(error, "are both in rank-00000.safetensors and in rank-00002.safetensors"));
  error = error_after(1, [&](auto& rows) { find(rows, "o.weight/param", 1).box.offset[1] -= 1; });
  EXPECT_TRUE(contains(error, "overlap"));
  error = error_after(1, [&](auto& rows) { find(rows, "o.weight/param", 1).box.offset[1] += 1; });
  EXPECT_TRUE(contains(error, "does not lie in the tensor's shape [10, 6]"));
  error = error_after(1, [&](auto& rows) {
    std::erase_if(
        rows, [](const Row& row) { return row.key == "q.weight/param" && row.piece.file == 1; });
  });
  EXPECT_TRUE(contains(error, "the files hold 30 of its 60 elements"));
  error = error_after(
      1, [&](auto& rows) { find(rows, "q.weight/param", 1).piece.dtype = Dtype::kBF16; });
  EXPECT_TRUE(contains(error, "stored as F32 in rank-00000.safetensors and as BF16"));
  error = error_after(1, [&](auto& rows) { rows.push_back(find(rows, "scalar/param", 1)); });
  EXPECT_TRUE(contains(error, "tensor 'scalar', state 'param'"));
}

// As the threads of a tool do.
TEST_F(Readers, ReadersInThreadsShareACheckpoint) {
  const auto checkpoint = StoredCheckpoint::open(save_on_mesh(dir_, 1, 3, 2, kAllStates));
  std::vector<std::thread> threads;
  for (int shard = 0; shard < 4; ++shard)
    threads.emplace_back([&, shard] {
      CheckpointReader reader(checkpoint);
      expect_rank_reads(reader, shard, 4, 0, 1, kAllStates);
    });
  for (std::thread& thread : threads) thread.join();
}

// The index of an old checkpoint is made of the files' headers.
TEST_F(Readers, OldVersionsAreReadOnAnyMesh) {
  for (const int version : {1, 2}) {
    const fs::path step = save_on_mesh(dir_, version, 2, 3, kAllStates);
    make_old(step, version);
    CheckpointReader reader(step);
    EXPECT_FALSE(reader.manifest().index);
    for (int to_shards = 1; to_shards <= 4; ++to_shards)
      for (int rank = 0; rank < to_shards * 2; ++rank)
        expect_rank_reads(reader, rank / 2, to_shards, rank % 2, 2, kAllStates);
    verify_all(step);
    const fs::path file = step / rank_file_name(3);
    const std::string good = slurp(file);
    for (size_t at = 0; at < good.size(); at += 11) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x20);
      spit(file, bad);
      const std::string message = user_error([&] { verify_all(step); });
      EXPECT_TRUE(contains(message, "rank-00003.safetensors")) << at;
    }
  }
}

// Pieces of more than the buffer, which have one checksum each.
TEST_F(Readers, LongPiecesOfOldVersionsAreCheckedToTheirEnd) {
  constexpr int64_t kNumel = 3'000'000;  // 12 MB
  std::vector<float> values(kNumel);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000003);
  const auto self = make_self_communicator();
  Manifest manifest = test_manifest(1, {kStateParam});
  manifest.tensors = {{"big", {kNumel}}};
  const BoxSlice whole{whole_box({kNumel}), 0, kNumel};
  const fs::path step = CheckpointManager(dir_, 0, *self, nullptr)
                            .save(manifest, {{"big", kStateParam, whole, Dtype::kF32,
                                              reinterpret_cast<std::byte*>(values.data())}});
  make_old(step, 2);
  std::vector<float> part(5);
  const Piece piece{"big",
                    kStateParam,
                    {whole.box, 2'000'000, 2'000'005},
                    Dtype::kF32,
                    reinterpret_cast<std::byte*>(part.data())};
  CheckpointReader reader(step);
  reader.read(piece);
  EXPECT_EQ(part, std::vector<float>(values.begin() + 2'000'000, values.begin() + 2'000'005));
  EXPECT_EQ(reader.blocks().bytes_read(), kNumel * 4);
  reader.read(piece);  // the second time it is known to be sound
  EXPECT_EQ(reader.blocks().bytes_read(), kNumel * 4 + 20);
  int64_t next = 0;
  reader.stream("big", kStateParam, Dtype::kF32, [&](const std::byte* data, int64_t bytes) {
    EXPECT_EQ(std::memcmp(data, values.data() + next, static_cast<size_t>(bytes)), 0);
    next += bytes / 4;
  });
  EXPECT_EQ(next, kNumel);
  std::string text = slurp(step / rank_file_name(0));
  text.back() ^= 1;
  spit(step / rank_file_name(0), text);
  CheckpointReader damaged(step);
  EXPECT_TRUE(contains(user_error([&] { damaged.read(piece); }), "the file's header says"));
}

TEST_F(Damaged, HeadersOfOldVersionsAreChecked) {
  const auto error_after = [&](const std::function<void(int, std::vector<OldPiece>&)>& edit) {
    fs::remove_all(step_);
    save_on_mesh(dir_, 1, 1, 2, kAllStates);
    make_old(step_, 2, edit);
    return open_error();
  };
  const auto find = [](std::vector<OldPiece>& pieces, const char* key) -> OldPiece& {
    for (OldPiece& piece : pieces)
      if (piece.key == key) return piece;
    throw Error("no such piece");
  };
  EXPECT_EQ(error_after([](int, auto&) {}), "no error");
  EXPECT_TRUE(contains(error_after([&](int file, auto& pieces) {
                         if (file == 1) find(pieces, "q.weight/param").key = "stranger/param";
                       }),
                       "piece 'stranger/param' belongs to no tensor"));
  EXPECT_TRUE(contains(error_after([&](int file, auto& pieces) {
                         if (file == 1) find(pieces, "q.weight/param").slice.box.shape = {30};
                       }),
                       "the box has an offset of 2 dims and a shape of 1"));
  EXPECT_TRUE(contains(error_after([&](int file, auto& pieces) {
                         if (file == 1) find(pieces, "o.weight/param").slice.box.offset[1] -= 1;
                       }),
                       "overlap"));
  EXPECT_TRUE(contains(error_after([&](int file, auto& pieces) {
                         if (file == 1)
                           std::erase_if(pieces, [](const OldPiece& piece) {
                             return piece.key == "q.weight/param";
                           });
                       }),
                       "the files hold 30 of its 60 elements"));
}

// A manifest that lists fewer files than there are pieces for.
TEST_F(Damaged, AManifestWithoutOneOfTheFilesIsIncomplete) {
  Manifest manifest = read_manifest(step_);
  manifest.files.pop_back();
  write_manifest(step_, manifest);
  EXPECT_TRUE(contains(open_error(), "file is 3; the rule is a number from 0 to below 3"));
}

}  // namespace
}  // namespace tessera::testing

#include "checkpoint/store/reader.h"

#include <cmath>

#include "checkpoint/format/elements.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint_testing.h"

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
  for (const ManifestFile& file : read_manifest(step).files) {
    int64_t of_file = 0;
    for (const StoredPiece& piece : read_rank_file(step, file)) of_file += piece.bytes();
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
  // Writes the file with pieces changed by `edit` and lists it in the manifest as if it were right.
  void rewrite(int rank, const std::function<void(std::vector<StoredPiece>&)>& edit) {
    Manifest manifest = read_manifest(step_);
    ManifestFile& file = manifest.files[static_cast<size_t>(rank)];
    std::vector<StoredPiece> pieces = read_rank_file(step_, file);
    edit(pieces);
    RankFileWriter writer(step_ / file.name, pieces);
    for (const StoredPiece& piece : pieces) {
      const std::vector<std::byte> data(static_cast<size_t>(piece.bytes()));
      writer.append(data.data(), piece.bytes());
    }
    file = writer.finish();
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
  std::string header = good;
  header[good.find("\"interval\\\":") != std::string::npos ? good.find("[", 20) : 60] ^= 2;
  spit(file, header);
  EXPECT_TRUE(contains(open_error(), "rank-00002.safetensors"));
  spit(file, slurp(step_ / rank_file_name(1)));
  EXPECT_TRUE(contains(open_error(), "rank-00002.safetensors"));
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
    const std::string message = user_error([&] { CheckpointReader(step_).verify(); });
    EXPECT_TRUE(contains(message, "rank-00003.safetensors")) << at;
  }
}

TEST_F(Damaged, ReadingAndStreamingCheckWhatTheyTouch) {
  const std::vector<StoredPiece> pieces = read_rank_file(step_, read_manifest(step_).files[0]);
  const StoredPiece& piece = pieces.front();
  const fs::path file = step_ / rank_file_name(0);
  std::string text = slurp(file);
  text[static_cast<size_t>(piece.file_offset + piece.bytes()) - 1] ^= 1;
  spit(file, text);
  const std::string tensor = piece.key.substr(0, piece.key.rfind('/'));
  const std::string state = piece.key.substr(piece.key.rfind('/') + 1);

  CheckpointReader reader(step_);
  const auto part = [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(end - begin));
    BoxSlice slice = piece.slice;
    slice.begin = begin;
    slice.end = end;
    reader.read({tensor, state, slice, Dtype::kF32, reinterpret_cast<std::byte*>(values.data())});
  };
  // Its first element only; the damage is in its last.
  const std::string message = user_error([&] { part(piece.slice.begin, piece.slice.begin + 1); });
  EXPECT_TRUE(contains(message, "rank-00000.safetensors: piece '" + piece.key + "'"));
  EXPECT_TRUE(contains(message, "checksum"));
  CheckpointReader streaming(step_);
  EXPECT_TRUE(
      contains(user_error([&] { streaming.stream(tensor, state, Dtype::kF32, [](auto, auto) {}); }),
               "checksum"));
}

TEST_F(Damaged, OverlapsAndHolesBetweenFilesAreErrors) {
  const auto find = [](std::vector<StoredPiece>& pieces, const char* key) -> StoredPiece& {
    for (StoredPiece& piece : pieces)
      if (piece.key == key) return piece;
    throw Error("no such piece");
  };
  rewrite(0, [&](auto& pieces) { find(pieces, "embed/param").slice.end -= 1; });
  EXPECT_TRUE(contains(open_error(), "tensor 'embed', state 'param': elements"));
  EXPECT_TRUE(contains(open_error(), "in no file"));

  save_on_mesh(dir_, 2, 2, 2, kAllStates);
  step_ = dir_ / step_dir_name(2);
  rewrite(2, [&](auto& pieces) { find(pieces, "o.weight/exp_avg").slice.begin -= 1; });
  EXPECT_TRUE(contains(open_error(), "tensor 'o.weight', state 'exp_avg': elements"));
  EXPECT_TRUE(contains(open_error(),
                       "are both in rank-00000.safetensors and in "
                       "rank-00002.safetensors"));

  save_on_mesh(dir_, 3, 1, 2, kAllStates);
  step_ = dir_ / step_dir_name(3);
  rewrite(1, [&](auto& pieces) { find(pieces, "o.weight/param").slice.box.offset[1] -= 1; });
  EXPECT_TRUE(contains(open_error(), "overlap"));

  save_on_mesh(dir_, 4, 1, 2, kAllStates);
  step_ = dir_ / step_dir_name(4);
  rewrite(1, [&](auto& pieces) { find(pieces, "o.weight/param").slice.box.offset[1] += 1; });
  EXPECT_TRUE(contains(open_error(), "does not lie in the tensor's shape [10, 6]"));

  save_on_mesh(dir_, 5, 1, 2, kAllStates);
  step_ = dir_ / step_dir_name(5);
  rewrite(1, [&](auto& pieces) {
    std::erase_if(pieces, [](const StoredPiece& piece) { return piece.key == "q.weight/param"; });
  });
  EXPECT_TRUE(contains(open_error(), "the files hold 30 of its 60 elements"));

  save_on_mesh(dir_, 6, 1, 2, kAllStates);
  step_ = dir_ / step_dir_name(6);
  rewrite(1, [&](auto& pieces) { find(pieces, "q.weight/param").key = "stranger/param"; });
  EXPECT_TRUE(contains(open_error(), "piece 'stranger/param' belongs to no tensor"));

  save_on_mesh(dir_, 7, 1, 2, kAllStates);
  step_ = dir_ / step_dir_name(7);
  rewrite(1, [&](auto& pieces) { find(pieces, "q.weight/param").dtype = Dtype::kBF16; });
  EXPECT_TRUE(contains(open_error(), "stored as F32 in rank-00000.safetensors and as BF16"));
}

// A manifest that lists fewer files than there are pieces for.
TEST_F(Damaged, AManifestWithoutOneOfTheFilesIsIncomplete) {
  Manifest manifest = read_manifest(step_);
  manifest.files.pop_back();
  write_manifest(step_, manifest);
  EXPECT_TRUE(contains(open_error(), "in no file"));
}

}  // namespace
}  // namespace tessera::testing

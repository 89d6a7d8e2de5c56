#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/store/manager.h"
#include "checkpoint/store/reader.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "support/temporary_folder.h"
#include "support/verify_all.h"

// What the tests of this folder share: a scratch folder, a model in miniature that can be laid out
// on any mesh, and forged files.
namespace tessera::testing {

namespace fs = std::filesystem;

class Scratch : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  fs::path dir_ = folder_.path();
};

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << text << "' lacks '" << part << "'";
}

// The message of the UserError that `call` throws; any other outcome is described instead.
template <typename Call>
std::string user_error(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("not a UserError: ") + error.what();
  }
  return "no error";
}

inline std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spit(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline void replace_in_file(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = slurp(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " is not in " << path;
  spit(path, text.replace(at, from.size(), to));
}

// A safetensors file of any header; `length` is what its first eight bytes claim.
inline std::string forge(const std::string& header, const std::string& data, uint64_t length) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return file + header + data;
}
inline std::string forge(const std::string& header, const std::string& data) {
  return forge(header, data, header.size());
}

// How a tensor is split by tensor parallelism: along a dim, or not at all (-1).
struct TestTensor {
  TensorInfo info;
  int split_dim;
};

// Odd sizes, sizes below the number of ranks, a scalar, an empty tensor, and escapes in a name.
inline std::vector<TestTensor> test_model() {
  return {{{"embed", {7, 5}}, 0},     {{"norm", {5}}, -1},      {{"q.weight", {6, 10}}, 0},
          {{"o.weight", {10, 6}}, 1}, {{"conv", {3, 4, 5}}, 1}, {{"tiny", {1, 2}}, 0},
          {{"scalar", {}}, -1},       {{"empty", {0, 3}}, -1},  {{"w\u00e9/\"x\"\\", {4, 4}}, 1}};
}

inline std::vector<TensorInfo> test_tensors() {
  std::vector<TensorInfo> infos;
  for (const TestTensor& tensor : test_model()) infos.push_back(tensor.info);
  return infos;
}

inline int64_t share(int64_t numel, int part, int parts) {
  return numel * part / parts;
}

// The value of each element, exact in every float type, from its place in the global tensor.
inline float test_value(const std::string& tensor, const std::string& state, int64_t index) {
  const auto salt = static_cast<int64_t>(tensor.size() * 3 + state.size());
  return static_cast<float>((index * 7 + salt) % 251 - 125);
}

// What one rank holds: the boxes of its tp slice, cut by the rank's part of a flat bucket of them
// all.
struct RankPieces {
  std::vector<std::vector<float>> data;
  std::vector<Piece> pieces;
};

inline int64_t global_index(const BoxSlice& slice, const std::vector<int64_t>& shape,
                            int64_t position) {
  int64_t index = 0, stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
    index += (slice.box.offset[d] + position % slice.box.shape[d]) * stride;
    position /= slice.box.shape[d];
  }
  return index;
}

// The pieces of slice `shard` of `shards` and tensor-parallel rank `tp` of `tps`. Two flat buckets,
// cut into slices each: tensors that tp splits (unevenly where sizes are odd), and those that all
// tp ranks hold alike, which are shared out among them as replicas.
inline RankPieces make_pieces(int shard, int shards, int tp, int tps, bool filled,
                              const std::vector<std::string>& states) {
  RankPieces rank;
  for (const bool split : {true, false}) {
    std::vector<std::pair<TensorInfo, Box>> bucket;
    int64_t total = 0;
    for (const TestTensor& tensor : test_model()) {
      if ((tensor.split_dim >= 0) != split) continue;
      Box box = whole_box(tensor.info.shape);
      if (split) {
        const auto d = static_cast<size_t>(tensor.split_dim);
        box.offset[d] = share(tensor.info.shape[d], tp, tps);
        box.shape[d] = share(tensor.info.shape[d], tp + 1, tps) - box.offset[d];
      }
      total += box.numel();
      bucket.emplace_back(tensor.info, box);
    }
    const int64_t begin = share(total, shard, shards), end = share(total, shard + 1, shards);
    int64_t cursor = 0;
    for (const auto& [info, box] : bucket) {
      const int64_t numel = box.numel();
      const BoxSlice slice{box, std::clamp(begin - cursor, int64_t{0}, numel),
                           std::clamp(end - cursor, int64_t{0}, numel)};
      cursor += numel;
      for (const std::string& state : states) {
        std::vector<float> values(static_cast<size_t>(slice.numel()), -999.f);
        for (int64_t i = 0; filled && i < slice.numel(); ++i)
          values[static_cast<size_t>(i)] =
              test_value(info.name, state, global_index(slice, info.shape, slice.begin + i));
        rank.data.push_back(std::move(values));
        Piece piece{info.name, state, slice, Dtype::kF32, nullptr, split ? 0 : tp, split ? 1 : tps};
        piece.data = reinterpret_cast<std::byte*>(rank.data.back().data());
        rank.pieces.push_back(std::move(piece));
      }
    }
  }
  return rank;
}

inline const std::vector<std::string> kAllStates{kStateParam, kStateExpAvg, kStateExpAvgSq};

inline Manifest test_manifest(int64_t step, const std::vector<std::string>& states) {
  Manifest manifest;
  manifest.step = step;
  manifest.samples = step * 8;
  manifest.tokens = step * 2048;
  manifest.seed = ~uint64_t{0};
  manifest.states = states;
  manifest.tensors = test_tensors();
  manifest.model = {{"model_type", "llama"}, {"rms_norm_eps", 1e-5}, {"hidden_size", 8}};
  manifest.config = {{"optimizer", {{"lr", 1e-3}}}};
  manifest.data = {"u8 1000 tokens 1 sequences xxh3 fedcba9876543210", "the second"};
  manifest.mesh = {{"dp_shard", 1}};
  manifest.writer = "tessera test";
  return manifest;
}

// Saves the test model on a mesh of thread ranks (tp fastest) into dir/step-N, and retires older
// ones beyond `keep`.
inline fs::path save_on_mesh(const fs::path& dir, int64_t step, int shards, int tps,
                             const std::vector<std::string>& states, int keep = 0) {
  fs::path result;
  run_thread_ranks(shards * tps, [&](Communicator& world) {
    RankPieces rank =
        make_pieces(world.rank() / tps, shards, world.rank() % tps, tps, true, states);
    CheckpointManager manager(dir, keep, world, nullptr);
    const fs::path saved = manager.save(test_manifest(step, states), rank.pieces);
    manager.retire_old();
    if (world.rank() == 0) result = saved;
  });
  return result;
}

// Reads every piece of a rank and compares it with what it must hold.
inline void expect_rank_reads(CheckpointReader& reader, int shard, int shards, int tp, int tps,
                              const std::vector<std::string>& states) {
  const RankPieces expected = make_pieces(shard, shards, tp, tps, true, states);
  RankPieces found = make_pieces(shard, shards, tp, tps, false, states);
  for (const Piece& piece : found.pieces) reader.read(piece);
  EXPECT_EQ(found.data, expected.data)
      << "slice " << shard << " of " << shards << ", tp " << tp << " of " << tps;
}

}  // namespace tessera::testing

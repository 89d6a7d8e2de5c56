// Times how long a rank takes from a step folder's name to knowing which bytes of which files it
// will read, for a synthetic checkpoint of flat buckets:
//
//   build/release/checkpoint_plan FOLDER [FILES [TENSORS]]     default: 1024 files of 2000 tensors
//
// FOLDER is made, and holds files without data (of holes). Ten tensors a bucket, each bucket cut
// into a slice for each file, three states; the rank wants its slices of a mesh of three quarters
// as many ranks. The first rank reads and checks all; the others get the bytes by a broadcast, so
// for them it is the second and the last row.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/files/files.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/stored_checkpoint.h"

namespace {

using namespace tessera;

constexpr int64_t kTensorsOfBucket = 10;
constexpr int64_t kNumel = int64_t{16} << 20;  // of a tensor: 64 MiB in fp32

class Stopwatch {
 public:
  void lap(const char* what) {
    const auto now = std::chrono::steady_clock::now();
    std::printf("%-42s %8.1f ms\n", what,
                std::chrono::duration<double, std::milli>(now - start_).count());
    start_ = std::chrono::steady_clock::now();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What rank `rank` of `ranks` holds of tensor `i` of a bucket.
BoxSlice slice_of(int64_t i, int64_t rank, int64_t ranks) {
  const int64_t all = kTensorsOfBucket * kNumel;
  const int64_t begin = all * rank / ranks - i * kNumel,
                end = all * (rank + 1) / ranks - i * kNumel;
  return {whole_box({kNumel}), std::clamp(begin, int64_t{0}, kNumel),
          std::clamp(end, int64_t{0}, kNumel)};
}

WrittenFile make_file(int64_t rank, int64_t ranks, const Manifest& manifest) {
  PieceIndexBuilder index;
  int64_t offset = 8;
  const auto tensors = static_cast<int64_t>(manifest.tensors.size());
  for (int64_t tensor = 0; tensor < tensors; ++tensor)
    for (int32_t state = 0; state < 3; ++state) {
      const BoxSlice slice = slice_of(tensor % kTensorsOfBucket, rank, ranks);
      StoredPiece piece;
      piece.tensor = static_cast<int32_t>(tensor);
      piece.state = state;
      piece.begin = slice.begin;
      piece.end = slice.end;
      piece.offset = offset;
      offset += piece.bytes();
      const auto blocks = static_cast<size_t>((piece.bytes() + kBlockBytes - 1) / kBlockBytes);
      index.add(slice.box, piece, std::vector<uint64_t>(blocks, 7));
    }
  return {{rank_file_name(static_cast<int>(rank)), offset, std::string(16, '0')}, index.finish()};
}

Manifest make_folder(const std::filesystem::path& dir, int64_t files, int64_t tensors) {
  make_folders(dir);
  Manifest manifest;
  manifest.states = {"param", "exp_avg", "exp_avg_sq"};
  manifest.writer = "checkpoint_plan";
  for (int64_t i = 0; i < tensors; ++i)
    manifest.tensors.push_back({fmt::format("model.layers.{}.mlp.gate_proj.weight", i), {kNumel}});
  std::vector<std::string> written;
  for (int64_t rank = 0; rank < files; ++rank) {
    const WrittenFile file = make_file(rank, files, manifest);
    File::create(dir / file.file.name).close();
    std::filesystem::resize_file(dir / file.file.name, static_cast<uintmax_t>(file.file.size));
    written.push_back(file.to_text());
  }
  Stopwatch watch;
  write_piece_index(dir, written, manifest);
  write_manifest(dir, manifest);
  watch.lap("rank 0 merges and writes the index");
  return manifest;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: checkpoint_plan FOLDER [FILES [TENSORS]]\n");
    return 2;
  }
  const std::filesystem::path dir = argv[1];
  const int64_t files = argc > 2 ? std::atoll(argv[2]) : 1024;
  const int64_t tensors = argc > 3 ? std::atoll(argv[3]) : 2000;
  const Manifest manifest = make_folder(dir, files, tensors);

  Stopwatch watch;
  const auto checkpoint = StoredCheckpoint::open(dir);
  watch.lap("rank 0 reads and checks it");
  const std::string bytes = checkpoint->index().to_bytes();
  watch.lap("rank 0 makes the bytes to broadcast");
  const PieceIndex index = PieceIndex::from_bytes(bytes, "bytes", checkpoint->manifest());
  watch.lap("another rank reads the bytes");

  const int64_t ranks = files * 3 / 4, rank = ranks / 3;
  int64_t parts = 0;
  for (int64_t tensor = 0; tensor < tensors; ++tensor)
    for (const std::string& state : checkpoint->manifest().states) {
      const BoxSlice wanted = slice_of(tensor % kTensorsOfBucket, rank, ranks);
      if (wanted.numel() == 0) continue;
      const auto& name = checkpoint->manifest().tensors[static_cast<size_t>(tensor)].name;
      for (const StoredPiece& piece : checkpoint->pieces(name, state))
        if (shared_span(checkpoint->index().slice(piece), wanted)) ++parts;
    }
  watch.lap("a rank finds what it needs");
  std::printf("%zu pieces, %zu blocks, index of %.1f MB; the rank reads from %lld of them\n",
              index.pieces().size(), index.digests().size(),
              static_cast<double>(bytes.size()) / 1e6, static_cast<long long>(parts));
  return 0;
}

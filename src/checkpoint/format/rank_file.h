#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/box.h"
#include "base/xxh3.h"
#include "checkpoint/format/manifest.h"
#include "safetensors/writer.h"

namespace tessera {

// One rank's file of a checkpoint: a safetensors file with an entry "TENSOR/STATE" of shape [numel]
// per piece. __metadata__ says under the same key where the piece belongs, as JSON text:
//   {"offset": [..], "shape": [..], "interval": [begin, end], "xxh3": "16 hex digits"}
// (the box in the global tensor, the interval of its row-major order, the digest of the bytes), and
// under "format" names this layout.
inline constexpr const char* kRankFileFormat = "tessera-rank-file/1";

// rank-00000.safetensors
std::string rank_file_name(int rank);

struct StoredPiece {
  std::string key;  // TENSOR/STATE
  BoxSlice slice;
  Dtype dtype = Dtype::kF32;
  int64_t file_offset = 0;  // of the first byte; filled by read_rank_file
  std::string xxh3;         // filled by read_rank_file

  int64_t bytes() const { return slice.numel() * dtype_size(dtype); }
};

std::string piece_key(const std::string& tensor, const std::string& state);

// Writes a rank file in one pass: digests are taken as data comes and put into the header at the
// end.
class RankFileWriter {
 public:
  // `pieces`: in the order in which their data will come; their file_offset and xxh3 are not read.
  RankFileWriter(const std::filesystem::path& path, std::vector<StoredPiece> pieces);

  // The next bytes of the pieces' data, in the order given.
  void append(const void* data, int64_t bytes);
  // Completes the header, fsyncs and closes. Returns the manifest's entry for this file.
  ManifestFile finish();

 private:
  std::string name_;
  std::vector<StoredPiece> pieces_;
  size_t current_ = 0;    // piece whose data comes next
  int64_t received_ = 0;  // bytes of it so far
  Xxh3 hash_;
  std::unique_ptr<SafetensorsWriter> writer_;
};

// Opens the file that the manifest names and reads its header. DamagedError if size or header
// digest are not the manifest's, or if an entry is not a sound piece; UserError if the layout is
// one that this program does not know, and if there is no such file.
std::vector<StoredPiece> read_rank_file(const std::filesystem::path& step_dir,
                                        const ManifestFile& listed);

// read_rank_file(), and every byte against its digest. Memory: a fixed buffer. `each_part` is
// called before each few MiB; what it throws ends the reading.
void verify_rank_file(
    const std::filesystem::path& step_dir, const ManifestFile& listed,
    const std::function<void()>& each_part = [] {});

// DamagedError that names file and piece: the bytes are not those that were written.
[[noreturn]] void fail_checksum(const std::filesystem::path& file, const StoredPiece& piece,
                                const std::string& found);

}  // namespace tessera

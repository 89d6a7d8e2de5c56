#include "checkpoint/tools/verify.h"

#include <algorithm>

#include "base/error.h"
#include "base/process/share_out.h"
#include "checkpoint/store/stored_checkpoint.h"

namespace tessera {
namespace {

constexpr int64_t kPart = int64_t{4} << 20;  // about what is read between two calls of each_part

// The damage of file number `number`; empty if there is none.
std::string damage_of(const std::shared_ptr<const StoredCheckpoint>& checkpoint,
                      const PiecesByFile& pieces, size_t number, ByteProgress& progress) {
  const std::vector<ManifestFile>& files = checkpoint->manifest().files;
  std::string damage;
  int64_t counted = 0;
  const auto count = [&](int64_t bytes) {
    bytes = std::min(bytes, files[number].size - counted);
    counted += bytes;
    progress.add(bytes);
  };
  try {
    verify_file(checkpoint, pieces, number, [&] { count(kPart); });
  } catch (const DamagedError& error) {
    damage = error.what();
  }
  count(files[number].size);
  return damage;
}

}  // namespace

std::vector<std::string> verify_step(const std::filesystem::path& step_dir,
                                     const ToolOptions& tool) {
  const auto checkpoint = StoredCheckpoint::open(step_dir);
  const PiecesByFile pieces = pieces_by_file(*checkpoint);
  const size_t files = pieces.size();
  int64_t bytes = 0;
  for (const ManifestFile& file : checkpoint->manifest().files) bytes += file.size;
  ByteProgress progress(bytes, tool.progress);
  std::vector<std::string> damage(files);
  share_out(files, tool.threads, [&]() -> Worker {
    return [&](size_t i) { damage[i] = damage_of(checkpoint, pieces, i, progress); };
  });
  std::erase(damage, "");
  return damage;
}

}  // namespace tessera

#include "checkpoint/tools/verify.h"

#include <algorithm>

#include "base/error.h"
#include "base/process/share_out.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/reader.h"

namespace tessera {
namespace {

constexpr int64_t kPart = int64_t{4} << 20;  // about what is read between two calls of each_part

// The damage of one file; empty if there is none.
std::string damage_of(const std::filesystem::path& step_dir, const ManifestFile& file,
                      ByteProgress& progress) {
  std::string damage;
  int64_t counted = 0;
  const auto count = [&](int64_t bytes) {
    bytes = std::min(bytes, file.size - counted);
    counted += bytes;
    progress.add(bytes);
  };
  try {
    verify_rank_file(step_dir, file, [&] { count(kPart); });
  } catch (const DamagedError& error) {
    damage = error.what();
  }
  count(file.size);
  return damage;
}

}  // namespace

std::vector<std::string> verify_step(const std::filesystem::path& step_dir,
                                     const ToolOptions& tool) {
  const std::vector<ManifestFile> files = CheckpointReader(step_dir).manifest().files;
  int64_t bytes = 0;
  for (const ManifestFile& file : files) bytes += file.size;
  ByteProgress progress(bytes, tool.progress);
  std::vector<std::string> damage(files.size());
  share_out(files.size(), tool.threads, [&]() -> Worker {
    return [&](size_t i) { damage[i] = damage_of(step_dir, files[i], progress); };
  });
  std::erase(damage, "");
  return damage;
}

}  // namespace tessera

#include "checkpoint/store/open_on_ranks.h"

#include <string>
#include <utility>

#include "parallel/comm/core/agreement.h"
#include "parallel/comm/core/file_work.h"

namespace tessera {

std::shared_ptr<const StoredCheckpoint> open_on_all_ranks(Communicator& world,
                                                          const std::filesystem::path& step_dir,
                                                          std::chrono::milliseconds late) {
  std::shared_ptr<const StoredCheckpoint> checkpoint;
  agree(world, [&] {
    if (world.rank() == 0) checkpoint = StoredCheckpoint::open(step_dir, late);
    return std::string();
  });
  if (world.size() == 1) return checkpoint;
  const FileWork file_work;
  std::string manifest =
      text_of_rank_0(world, checkpoint ? checkpoint->manifest_text() : std::string());
  // The index of an old checkpoint is in no file; rank 0 has made it of many.
  const std::string index =
      text_of_rank_0(world, checkpoint ? checkpoint->index().to_bytes() : std::string());
  if (checkpoint) return checkpoint;
  Manifest parsed = parse_manifest(manifest, (step_dir / "manifest.json").string());
  PieceIndex pieces = PieceIndex::from_bytes(index, step_dir.string(), parsed);
  return std::make_shared<StoredCheckpoint>(step_dir, std::move(manifest), std::move(parsed),
                                            std::move(pieces));
}

}  // namespace tessera

#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/store/run_folder.h"
#include "checkpoint/store/step_save.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// Saves, finds and retires the checkpoints of one run folder. All methods are collective over
// `world`.
class CheckpointManager {
 public:
  // dir: RUN/checkpoints. keep: how many committed checkpoints stay (0: all). `warn` takes one
  // line.
  CheckpointManager(std::filesystem::path dir, int keep, Communicator& world,
                    std::function<void(const std::string&)> warn);

  // Saves one step from host memory and waits for it (save_step()).
  std::filesystem::path save(Manifest manifest, const std::vector<Piece>& pieces);
  // The same from any thread, over a group of the same ranks that only this thread uses. Nothing
  // else of this object is called meanwhile.
  std::filesystem::path save(SaveWork work, Communicator& group);

  // Deletes the oldest whole checkpoints beyond `keep`; the one that save() wrote last stays
  // whatever its number. Not part of save(), so that the validation of the saved step can be made
  // before anything is deleted. What cannot be deleted is a warning. Rank 0 alone does it, and
  // nobody waits: not collective.
  void retire_old();

  // The newest checkpoint that is complete and whole (every checksum verified), chosen by rank 0
  // and agreed by all. One that is damaged is warned of by name, moved to step-N.broken, and the
  // next older one is taken. nullopt when there is none at all; UserError when there are some but
  // none whole. Anything else that keeps the newest from being read (permission, a failed read, the
  // format version of a newer program) is no damage: it ends the search with its error, and nothing
  // is renamed.
  std::optional<std::filesystem::path> find_latest();

  // Checks all of any checkpoint folder, files shared out over the ranks, and moves nothing.
  // Returns on all ranks or throws on all: UserError with the path if it does not exist or is of an
  // unknown version, DamagedError if anything in it is damaged, Error if it could not be read.
  void verify(const std::filesystem::path& step_dir);

  // The steps that are committed here, rising. Cheap: names only, nothing is verified or moved.
  std::vector<int64_t> committed_steps();

  // Saves write to this folder of the node's own disk first (SavePlace::staging_dir); empty: they
  // do not. What a killed run has left there is removed. UserError if it cannot be written.
  // Collective.
  void use_staging_dir(const std::filesystem::path& folder);

  // Called on rank 0 before every save: throws if the folder has become another run's.
  void set_check(std::function<void()> check_ours) { place_.check_ours = std::move(check_ours); }
  // `check` is called now and then while verify() and find_latest() read data; what it throws (such
  // as StopRequested) ends them on all ranks.
  void set_stop_check(std::function<void()> check) { stop_check_ = std::move(check); }

  // For tests: calls `probe` with a name at every point of a save where being killed is a case of
  // its own ("partial made", "file written", "all agreed", "manifest written", ...).
  void set_probe(std::function<void(const char* point)> probe) { place_.probe = std::move(probe); }

 private:
  void retire_beyond_keep();

  SavePlace place_;
  int keep_;
  std::optional<int64_t> last_saved_;
  Communicator& world_;
  std::function<void()> stop_check_ = [] {};
};

}  // namespace tessera

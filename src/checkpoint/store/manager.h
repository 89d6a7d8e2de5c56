#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/retention.h"
#include "checkpoint/store/run_folder.h"
#include "checkpoint/store/step_save.h"
#include "checkpoint/store/stored_checkpoint.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// Saves, finds and retires the checkpoints of one run folder. All methods are collective over
// `world`.
class CheckpointManager {
 public:
  // dir: RUN/checkpoints. rules: which committed checkpoints stay. `warn` takes one line.
  CheckpointManager(std::filesystem::path dir, RetentionRules rules, Communicator& world,
                    std::function<void(const std::string&)> warn);

  // Saves one step from host memory and waits for it (save_step()).
  std::filesystem::path save(Manifest manifest, const std::vector<Piece>& pieces);
  // The same from any thread, over a group of the same ranks that only this thread uses. Nothing
  // else of this object is called meanwhile.
  std::filesystem::path save(SaveWork work, Communicator& group);

  // Deletes the whole checkpoints that no rule keeps, never the one that save() wrote last, nor one
  // that find_latest() gave since. Not part of save(), so that the validation of the saved step can
  // be made before anything is deleted. What cannot be deleted is a warning. Rank 0 alone does it,
  // and nobody waits: not collective.
  void retire_old();

  // The validation loss of a step (validation_losses.h), by which the best checkpoints are told;
  // and the end of what is known of the steps after `step`, to which a run has gone back.
  // The first is not collective, and a failure of it is a warning.
  void record_loss(int64_t step, double loss);
  void forget_losses_after(int64_t step);

  // The newest checkpoint that is complete: manifest and index are whole, and all files are there
  // with their sizes. Its data are checked when they are loaded, block by block. Chosen and read by
  // rank 0, and known to all. One that is damaged is warned of by name, moved to step-N.broken, and
  // the next older one is taken. Null when there is none at all; UserError when there are some but
  // none complete. Anything else that keeps the newest from being read (permission, a failed read,
  // the format version of a newer program) is no damage: it ends the search with its error, and
  // nothing is renamed.
  std::shared_ptr<const StoredCheckpoint> find_latest();

  // Runs `load`, which loads data of a checkpoint that find_latest() gave and throws on all ranks
  // alike. False if the data are damaged: then the checkpoint is warned of and moved as above, and
  // find_latest() gives an older one.
  bool load_or_set_aside(const StoredCheckpoint& checkpoint, const std::function<void()>& load);

  // Reads all data of a checkpoint, files shared out over the ranks, and moves nothing. Returns on
  // all ranks or throws on all: DamagedError if anything is damaged, Error if it could not be read.
  void verify(const std::shared_ptr<const StoredCheckpoint>& checkpoint);

  // The steps that are committed here, rising. Cheap: names only, nothing is verified or moved.
  std::vector<int64_t> committed_steps();

  // Saves write to this folder of the node's own disk first (SavePlace::staging_dir); empty: they
  // do not. What a killed run has left there is removed. UserError if it cannot be written.
  // Collective.
  void use_staging_dir(const std::filesystem::path& folder);

  // `check_ours` is called on rank 0 before whatever it writes or removes here, and before the
  // commit: throws if the folder has become another start's (ReplacedError, which passes through,
  // but for retire_old()). `names`: of this start's unfinished folders.
  void set_owner(std::function<void()> check_ours, UnfinishedNames names) {
    place_.check_ours = std::move(check_ours);
    place_.names = names;
  }
  // `check` is called now and then while verify() reads data; what it throws (such as
  // StopRequested) ends it on all ranks.
  void set_stop_check(std::function<void()> check) { stop_check_ = std::move(check); }

  // How long find_latest() waits for a file that a manifest names before it is called missing.
  void set_late_file_limit(std::chrono::milliseconds limit) { late_files_ = limit; }

  // For tests: calls `probe` with a name at every point of a save where being killed is a case of
  // its own ("partial made", "file written", "all agreed", "manifest written", ...).
  void set_probe(std::function<void(const char* point)> probe) { place_.probe = std::move(probe); }

 private:
  void set_damaged_aside(const std::filesystem::path& step_dir, const std::string& why);
  void retire_by_rules();

  SavePlace place_;
  RetentionRules rules_;
  std::optional<int64_t> last_saved_;
  std::optional<int64_t> last_found_;  // of rank 0: by find_latest(), nothing was saved since
  std::chrono::milliseconds late_files_ = std::chrono::seconds(10);
  std::string last_damage_;  // of a checkpoint that was set aside
  Communicator& world_;
  std::function<void()> stop_check_ = [] {};
};

}  // namespace tessera

#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/pieces.h"
#include "checkpoint/store/retention.h"
#include "checkpoint/store/run_folder.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// Saves, finds and retires the checkpoints of one run folder. All methods are collective over
// `world`.
class CheckpointManager {
 public:
  // dir: RUN/checkpoints. rules: which committed checkpoints stay. `warn` takes one line.
  CheckpointManager(std::filesystem::path dir, RetentionRules rules, Communicator& world,
                    std::function<void(const std::string&)> warn);

  // Commit order: step-N.partial/ is made anew (with a number behind it where a left-over cannot be
  // removed), every rank writes and fsyncs rank-RRRRR.safetensors, all agree, rank 0 writes the
  // manifest last, fsyncs the folder, renames it to step-N, fsyncs the parent and replaces `latest`
  // by rename. `manifest` comes with step, samples, tokens, seed, states, tensors, model, config,
  // data and mesh. If any rank fails, all ranks throw, .partial is left, and older checkpoints are
  // untouched. Returns the committed folder. Error if the step is committed already: what is there
  // may be of another run.
  std::filesystem::path save(Manifest manifest, const std::vector<Piece>& pieces);

  // Deletes the whole checkpoints that no rule keeps, never the one that save() wrote last, nor one
  // that find_latest() gave since. Not part of save(), so that the validation of the saved step can
  // be made before anything is deleted. What cannot be deleted is a warning.
  void retire_old();

  // The validation loss of a step (validation_losses.h), by which the best checkpoints are told;
  // and the end of what is known of the steps after `step`, to which a run has gone back.
  void record_loss(int64_t step, double loss);
  void forget_losses_after(int64_t step);

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

  // Called on rank 0 before every save: throws if the folder has become another run's.
  void set_check(std::function<void()> check_ours) { check_ours_ = std::move(check_ours); }
  // `check` is called now and then while verify() and find_latest() read data; what it throws (such
  // as StopRequested) ends them on all ranks.
  void set_stop_check(std::function<void()> check) { stop_check_ = std::move(check); }

  // For tests: calls `probe` with a name at every point of a save where being killed is a case of
  // its own ("partial made", "file written", "all agreed", "manifest written", ...).
  void set_probe(std::function<void(const char* point)> probe) { probe_ = std::move(probe); }

 private:
  ManifestFile write_rank_file(const std::filesystem::path& partial,
                               const std::vector<Piece>& pieces);
  void commit(Manifest& manifest, const std::filesystem::path& partial,
              const std::filesystem::path& target);
  void point_latest_to(int64_t step);
  void retire_by_rules();
  void warn_of_left_overs();

  std::filesystem::path dir_;
  RetentionRules rules_;
  std::optional<int64_t> last_saved_;
  std::optional<int64_t> last_found_;  // of rank 0: by find_latest(), nothing was saved since
  Communicator& world_;
  std::function<void(const std::string&)> warn_;
  std::function<void()> check_ours_ = [] {};
  std::function<void()> stop_check_ = [] {};
  std::function<void(const char* point)> probe_ = [](const char*) {};
};

}  // namespace tessera

#include "checkpoint/store/manager.h"

#include <iterator>
#include <sstream>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/files/files.h"
#include "base/files/try_folder.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/open_on_ranks.h"
#include "checkpoint/store/validation_losses.h"
#include "parallel/comm/core/agreement.h"

namespace tessera {
namespace {

// Finds out now, not hours later, if the folder cannot be written to. Returns what its file system
// cannot do (try_folder()).
std::vector<std::string> check_writable(const std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error || !std::filesystem::is_directory(dir, error))
    fail_user("checkpoint", "cannot make the folder {}: {}; give another one", dir.string(),
              error ? error.message() : "a file is in its place");
  try {
    return try_folder(dir);
  } catch (const Error& failure) {
    fail_user("checkpoint", "cannot write to the folder {}: {}", dir.string(), failure.what());
  }
}

}  // namespace

CheckpointManager::CheckpointManager(std::filesystem::path dir, RetentionRules rules,
                                     Communicator& world,
                                     std::function<void(const std::string&)> warn)
    : rules_(rules), world_(world) {
  place_.dir = std::move(dir);
  place_.warn = warn ? std::move(warn) : [](const std::string&) {};
  agree(world_, [&] {
    if (place_.dir.empty())
      fail_user("checkpoint", "the path of the checkpoints is empty; set run.dir");
    if (rules_.keep < 0)
      fail_user("checkpoint", "keep is {}; the rule is 0 (all) or the number that stays",
                rules_.keep);
    place_.dir = clean_path(place_.dir);
    if (world_.rank() == 0)
      for (const std::string& lack : check_writable(place_.dir)) place_.warn(lack);
    return std::string();
  });
}

void CheckpointManager::use_staging_dir(const std::filesystem::path& folder) {
  agree(world_, [&] {
    place_.staging_dir = folder;
    if (folder.empty()) return std::string();
    check_writable(folder);
    if (const std::string why = remove_tree(staging_file(place_, world_.rank())); !why.empty())
      fail_user("checkpoint", "{}", why);
    return std::string();
  });
}

std::filesystem::path CheckpointManager::save(Manifest manifest, const std::vector<Piece>& pieces) {
  std::vector<OwnPart> parts;
  agree(world_, [&] {
    parts = own_parts(pieces, world_.rank());
    return std::string();
  });
  DirectBytes bytes(parts, {}, {});
  return save({.manifest = std::move(manifest), .parts = parts, .bytes = bytes}, world_);
}

std::filesystem::path CheckpointManager::save(SaveWork work, Communicator& group) {
  const int64_t step = work.manifest.step;
  std::filesystem::path folder = save_step(place_, std::move(work), group);
  last_saved_ = step;
  last_found_.reset();
  return folder;
}

void CheckpointManager::retire_old() {
  if (world_.rank() == 0 && rules_.keep > 0) retire_by_rules();
}

void CheckpointManager::retire_by_rules() {
  try {
    place_.check_ours();
    SavedSteps saved{.just_saved = last_saved_, .just_loaded = last_found_};
    for (const int64_t step : list_run_folder(place_.dir).steps) {
      const std::filesystem::path path = place_.dir / step_dir_name(step);
      try {
        if (!is_committed(path)) continue;
        read_manifest(path);  // what is not whole does not count, and is not deleted
        saved.whole.push_back(step);
      } catch (const UserError&) {
      } catch (const Error& failure) {  // nor what cannot be read; the others are retired
        place_.warn(fmt::format("{} stays: {}", path.string(), failure.what()));
      }
    }
    if (rules_.keep_best > 0) saved.losses = read_validation_losses(place_.dir);
    for (const int64_t step : steps_to_retire(rules_, saved))
      if (const std::string why = retire(place_.dir / step_dir_name(step), place_.probe);
          !why.empty())
        place_.warn(why);
    sync_folder(place_.dir);
  } catch (const std::exception& failure) {
    place_.warn(fmt::format("old checkpoints stay: {}", failure.what()));
  }
}

// What is known of losses only decides what is kept: it is no reason to end a run.
void CheckpointManager::record_loss(int64_t step, double loss) {
  if (world_.rank() != 0) return;
  try {
    place_.check_ours();
    record_validation_loss(place_.dir, step, loss);
  } catch (const ReplacedError&) {
    throw;
  } catch (const Error& failure) {
    place_.warn(failure.what());
  }
}

void CheckpointManager::forget_losses_after(int64_t step) {
  agree(world_, [&] {
    if (world_.rank() != 0) return std::string();
    place_.check_ours();
    forget_validation_losses(place_.dir, step);
    return std::string();
  });
}

void CheckpointManager::verify(const std::shared_ptr<const StoredCheckpoint>& checkpoint) {
  agree(world_, [&] {
    const PiecesByFile pieces = pieces_by_file(*checkpoint);
    const auto rank = static_cast<size_t>(world_.rank()),
               ranks = static_cast<size_t>(world_.size());
    for (size_t file = rank; file < pieces.size(); file += ranks)
      verify_file(checkpoint, pieces, file, stop_check_);
    return std::string();
  });
}

std::vector<int64_t> CheckpointManager::committed_steps() {
  const std::vector<std::string> listed = agree(world_, [&] {
    std::string text;
    if (world_.rank() != 0) return text;
    for (const int64_t step : list_run_folder(place_.dir).steps)
      if (is_committed(place_.dir / step_dir_name(step))) text += fmt::format("{} ", step);
    return text;
  });
  std::istringstream text(listed[0]);
  return {std::istream_iterator<int64_t>(text), {}};
}

std::shared_ptr<const StoredCheckpoint> CheckpointManager::find_latest() {
  while (true) {
    const std::vector<std::string> chosen = agree(world_, [&]() -> std::string {
      if (world_.rank() != 0) return "";
      const RunFolder found = list_run_folder(place_.dir);
      if (found.steps.empty() && found.broken.empty()) return "";
      if (found.steps.empty())
        fail_user("checkpoint",
                  "{} holds checkpoints, but none is whole ({} set aside, the newest is {}){}{}. "
                  "Start from another one with checkpoint.resume: PATH, or remove them to start "
                  "anew",
                  place_.dir.string(), found.broken.size(), found.broken.back().filename().string(),
                  last_damage_.empty() ? "" : "; the last one: ", last_damage_);
      last_found_ = found.steps.back();
      return (place_.dir / step_dir_name(found.steps.back())).string();
    });
    if (chosen[0].empty()) return nullptr;
    try {
      return open_on_all_ranks(world_, chosen[0], late_files_);
    } catch (const DamagedError& damage) {  // on all ranks alike
      set_damaged_aside(chosen[0], damage.what());
    }
  }
}

bool CheckpointManager::load_or_set_aside(const StoredCheckpoint& checkpoint,
                                          const std::function<void()>& load) {
  try {
    load();
    return true;
  } catch (const DamagedError& damage) {
    set_damaged_aside(checkpoint.dir(), damage.what());
    return false;
  }
}

void CheckpointManager::set_damaged_aside(const std::filesystem::path& step_dir,
                                          const std::string& why) {
  last_damage_ = why;
  agree(world_, [&] {
    if (world_.rank() != 0) return std::string();
    place_.check_ours();
    place_.warn(fmt::format("{} is broken: {}; moved to {}, trying the one before it",
                            step_dir.string(), why, set_aside(step_dir).filename().string()));
    return std::string();
  });
}

}  // namespace tessera

#include "checkpoint/store/manager.h"

#include <iterator>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/try_folder.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/reader.h"
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

CheckpointManager::CheckpointManager(std::filesystem::path dir, int keep, Communicator& world,
                                     std::function<void(const std::string&)> warn)
    : keep_(keep), world_(world) {
  place_.dir = std::move(dir);
  place_.warn = warn ? std::move(warn) : [](const std::string&) {};
  agree(world_, [&] {
    if (place_.dir.empty())
      fail_user("checkpoint", "the path of the checkpoints is empty; set run.dir");
    if (keep_ < 0)
      fail_user("checkpoint", "keep is {}; the rule is 0 (all) or the number that stays", keep_);
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
  return folder;
}

void CheckpointManager::retire_old() {
  if (world_.rank() == 0 && keep_ > 0) retire_beyond_keep();
}

void CheckpointManager::retire_beyond_keep() {
  try {
    std::vector<std::filesystem::path> whole;  // oldest first; the one just saved comes last
    for (const int64_t step : list_run_folder(place_.dir).steps) {
      const std::filesystem::path path = place_.dir / step_dir_name(step);
      try {
        if (step != last_saved_ && is_committed(path)) {
          read_manifest(path);  // what is not whole does not count, and is not deleted
          whole.push_back(path);
        }
      } catch (const UserError&) {
      } catch (const Error& failure) {  // nor what cannot be read; the others are retired
        place_.warn(fmt::format("{} stays: {}", path.string(), failure.what()));
      }
    }
    const auto others = static_cast<size_t>(last_saved_ ? keep_ - 1 : keep_);
    for (size_t i = 0; i + others < whole.size(); ++i)
      if (const std::string why = retire(whole[i], place_.probe); !why.empty()) place_.warn(why);
    sync_folder(place_.dir);
  } catch (const std::exception& failure) {
    place_.warn(fmt::format("old checkpoints stay: {}", failure.what()));
  }
}

void CheckpointManager::verify(const std::filesystem::path& step_dir) {
  // Rank 0 looks whether files, headers and coverage are sound; then all ranks share the data. A
  // file that is there for rank 0 and missing for another is no damage, but a folder that the nodes
  // do not share.
  agree(world_, [&] {
    if (world_.rank() == 0) CheckpointReader check(step_dir);
    return std::string();
  });
  agree(world_, [&] {
    const Manifest manifest = read_manifest(step_dir);
    const auto ranks = static_cast<size_t>(world_.size());
    for (auto i = static_cast<size_t>(world_.rank()); i < manifest.files.size(); i += ranks)
      verify_rank_file(step_dir, manifest.files[i], stop_check_);
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

std::optional<std::filesystem::path> CheckpointManager::find_latest() {
  std::string last_reason;
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
                  last_reason.empty() ? "" : "; the last one: ", last_reason);
      return (place_.dir / step_dir_name(found.steps.back())).string();
    });
    if (chosen[0].empty()) return std::nullopt;
    const std::filesystem::path path = chosen[0];
    try {
      verify(path);
      return path;
    } catch (const DamagedError& damage) {  // on all ranks alike
      last_reason = damage.what();
    }
    agree(world_, [&] {
      if (world_.rank() == 0)
        place_.warn(fmt::format("{} is broken: {}; moved to {}, trying the one before it",
                                path.string(), last_reason, set_aside(path).filename().string()));
      return std::string();
    });
  }
}

}  // namespace tessera

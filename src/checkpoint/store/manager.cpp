#include "checkpoint/store/manager.h"

// The commit order of a save, after which a kill at any moment leaves the newest whole checkpoint
// or the one before it:
//
//   rank 0      | removes what killed saves left, as far as it goes; makes step-N.partial/ (agree)
//   all ranks   | write rank-RRRRR.safetensors into it, fsync                     (agree)
//   rank 0      | manifest.json (its presence says that all files are whole), fsync of the folder,
//               | rename to step-N: this is the commit; fsync of the parent
//               | `latest` (advisory)                                             (agree)
//   later, in a call of its own: rank 0 retires the oldest beyond `keep`            (agree)
//
// Invariants: a name step-N never stands for something half written; nothing older is touched
// before the new one is durable; at each `agree` an error of one rank becomes an error of all, so
// no rank waits for one that gave up. What comes after the commit, and all removal before it, can
// fail only with a warning.

#include <iterator>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/try_folder.h"
#include "checkpoint/format/own_part.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/store/reader.h"
#include "parallel/comm/core/agreement.h"

namespace tessera {
namespace {

// Whether a step folder is committed. Error if that cannot be found out, since the caller may move
// away what is not.
bool is_committed(const std::filesystem::path& step_dir) {
  return is_file(step_dir / "manifest.json");
}

// Finds out now, not hours later, if the folder cannot be written to. Returns what its file system
// cannot do (try_folder()).
std::vector<std::string> check_writable(const std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error || !std::filesystem::is_directory(dir, error))
    fail_user("checkpoint", "cannot make the folder {}: {}; give another run.dir", dir.string(),
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
    : dir_(std::move(dir)), keep_(keep), world_(world), warn_(std::move(warn)) {
  if (!warn_) warn_ = [](const std::string&) {};
  agree(world_, [&] {
    if (dir_.empty()) fail_user("checkpoint", "the path of the checkpoints is empty; set run.dir");
    if (keep_ < 0)
      fail_user("checkpoint", "keep is {}; the rule is 0 (all) or the number that stays", keep_);
    dir_ = clean_path(dir_);
    if (world_.rank() == 0)
      for (const std::string& lack : check_writable(dir_)) warn_(lack);
    return std::string();
  });
}

std::filesystem::path CheckpointManager::save(Manifest manifest, const std::vector<Piece>& pieces) {
  const std::filesystem::path target = dir_ / step_dir_name(manifest.step);
  const std::vector<std::string> begun = agree(world_, [&]() -> std::string {
    if (world_.rank() != 0) return "";
    check_ours_();
    if (is_committed(target))
      fail("checkpoint",
           "{} is committed already; a committed checkpoint is never written over, move it away "
           "to save this step again",
           target.string());
    probe_("begin");
    warn_of_left_overs();
    // step-N without a manifest: not a checkpoint, but not ours to delete either.
    if (type_of(target) != std::filesystem::file_type::not_found)
      warn_(fmt::format("{} is not a whole checkpoint; moved to {}", target.string(),
                        set_aside(target).string()));
    const std::filesystem::path free = free_name(target, ".partial");
    make_folders(free);
    probe_("partial made");
    return free.string();
  });
  const std::filesystem::path partial = begun[0];

  const std::vector<std::string> written = agree(world_, [&] {
    const ManifestFile file = write_rank_file(partial, pieces);
    return fmt::format("{} {} {}", file.name, file.size, file.header_xxh3);
  });
  agree(world_, [&] {
    if (world_.rank() != 0) return std::string();
    probe_("all agreed");
    manifest.files.clear();
    for (const std::string& line : written) {
      const size_t first = line.find(' '), second = line.find(' ', first + 1);
      manifest.files.push_back(
          {line.substr(0, first), std::stoll(line.substr(first + 1)), line.substr(second + 1)});
    }
    commit(manifest, partial, target);
    point_latest_to(manifest.step);
    return std::string();
  });
  last_saved_ = manifest.step;
  return target;
}

ManifestFile CheckpointManager::write_rank_file(const std::filesystem::path& partial,
                                                const std::vector<Piece>& pieces) {
  // Rank 0 has made it; on a network file system this also brings it into the local cache.
  make_folders(partial);
  std::vector<StoredPiece> stored;
  std::vector<const std::byte*> data;
  std::set<std::string> keys;
  for (const Piece& piece : pieces) {
    StoredPiece part;
    part.key = piece_key(piece.tensor, piece.state);
    part.slice = own_part(piece);
    part.dtype = piece.dtype;
    if (part.slice.numel() == 0) continue;
    if (!keys.insert(part.key).second)
      fail("checkpoint", "rank {} gives two pieces of '{}'; a file holds one per tensor and state",
           world_.rank(), part.key);
    data.push_back(piece.data + (part.slice.begin - piece.slice.begin) * dtype_size(piece.dtype));
    stored.push_back(std::move(part));
  }
  RankFileWriter writer(partial / rank_file_name(world_.rank()), stored);
  probe_("file begun");
  for (size_t i = 0; i < stored.size(); ++i) {
    // In parts, so that hashing and writing find the bytes in the cache.
    constexpr int64_t kPart = int64_t{4} << 20;
    for (int64_t done = 0; done < stored[i].bytes(); done += kPart)
      writer.append(data[i] + done, std::min(kPart, stored[i].bytes() - done));
    probe_("piece written");
  }
  ManifestFile file = writer.finish();
  probe_("file written");
  return file;
}

void CheckpointManager::commit(Manifest& manifest, const std::filesystem::path& partial,
                               const std::filesystem::path& target) {
  for (const ManifestFile& listed : manifest.files) {
    const std::filesystem::path path = partial / listed.name;
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error || static_cast<int64_t>(size) != listed.size)
      fail("checkpoint",
           "rank 0 does not see {} with the {} bytes that were written; run.dir must be on a file "
           "system that all nodes share",
           path.string(), listed.size);
  }
  write_manifest(partial, manifest);
  probe_("manifest written");
  sync_folder(partial);
  probe_("folder synced");
  rename_path(partial, target);
  probe_("renamed");
  sync_folder(dir_);
  probe_("committed");
}

// A failure is only a warning: after the commit the checkpoint stands, so the save has succeeded.
void CheckpointManager::point_latest_to(int64_t step) {
  try {
    write_file_atomic(dir_ / "latest", step_dir_name(step) + "\n");
    probe_("latest replaced");
  } catch (const std::exception& failure) {
    warn_(fmt::format("{} is saved, but {}", step_dir_name(step), failure.what()));
  }
}

void CheckpointManager::retire_old() {
  agree(world_, [&] {
    if (world_.rank() == 0 && keep_ > 0) retire_beyond_keep();
    return std::string();
  });
}

void CheckpointManager::retire_beyond_keep() {
  try {
    std::vector<std::filesystem::path> whole;  // oldest first; the one just saved comes last
    for (const int64_t step : list_run_folder(dir_).steps) {
      const std::filesystem::path path = dir_ / step_dir_name(step);
      try {
        if (step != last_saved_ && is_committed(path)) {
          read_manifest(path);  // what is not whole does not count, and is not deleted
          whole.push_back(path);
        }
      } catch (const UserError&) {
      } catch (const Error& failure) {  // nor what cannot be read; the others are retired
        warn_(fmt::format("{} stays: {}", path.string(), failure.what()));
      }
    }
    const auto others = static_cast<size_t>(last_saved_ ? keep_ - 1 : keep_);
    for (size_t i = 0; i + others < whole.size(); ++i)
      if (const std::string why = retire(whole[i], probe_); !why.empty()) warn_(why);
    sync_folder(dir_);
  } catch (const std::exception& failure) {
    warn_(fmt::format("old checkpoints stay: {}", failure.what()));
  }
}

// Removes left-overs. A failure is only a warning: the save that follows does not depend on it.
void CheckpointManager::warn_of_left_overs() {
  try {
    for (const std::string& failure : remove_left_overs(dir_)) warn_(failure);
  } catch (const std::exception& failure) {
    warn_(failure.what());
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
    for (const int64_t step : list_run_folder(dir_).steps)
      if (is_committed(dir_ / step_dir_name(step))) text += fmt::format("{} ", step);
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
      const RunFolder found = list_run_folder(dir_);
      if (found.steps.empty() && found.broken.empty()) return "";
      if (found.steps.empty())
        fail_user("checkpoint",
                  "{} holds checkpoints, but none is whole ({} set aside, the newest is {}){}{}. "
                  "Start from another one with checkpoint.resume: PATH, or remove them to start "
                  "anew",
                  dir_.string(), found.broken.size(), found.broken.back().filename().string(),
                  last_reason.empty() ? "" : "; the last one: ", last_reason);
      return (dir_ / step_dir_name(found.steps.back())).string();
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
        warn_(fmt::format("{} is broken: {}; moved to {}, trying the one before it", path.string(),
                          last_reason, set_aside(path).filename().string()));
      return std::string();
    });
  }
}

}  // namespace tessera

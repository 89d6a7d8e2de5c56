#include "checkpoint/store/step_save.h"

// The commit order of a save, after which a kill at any moment leaves the newest whole checkpoint
// or the one before it:
//
//   all ranks   | where there is a staging_dir: write the rank's file there
//   rank 0      | removes what killed saves left, as far as it goes; makes step-N.partial/ (agree)
//   all ranks   | write rank-RRRRR.safetensors into it (or copy it there), fsync    (agree)
//   rank 0      | looks whether the run folder is still this start's; pieces.safetensors, the index
//   of all files' pieces, fsync;
//               | what must not be missing where the step is there (before_commit);
//               | manifest.json (its presence says that all files are whole), fsync of the folder,
//               | rename to step-N: this is the commit; fsync of the parent
//               | `latest` (advisory)                                             (agree)
//
// Invariants: a name step-N never stands for something half written; nothing older is touched
// before the new one is durable; at each `agree` an error of one rank becomes an error of all, so
// no rank waits for one that gave up. What comes after the commit, and all removal before it, can
// fail only with a warning.
//
// A start that another one has replaced (base/files/folder_lock.h) may have been stopped between
// its last look and the rename, and go on at any later time. It still commits nothing of anybody
// else's, and nothing that is not whole: folders of starts after a replacement carry their start's
// number, and the newer start renames the older's unfinished folders away before it looks for a
// checkpoint to go on from. A rename that comes before that commits a whole step, from which the
// newer start then goes on; one that comes later finds nothing to rename.

#include <algorithm>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/free_space.h"
#include "base/files/late_file.h"
#include "base/text/quantities.h"
#include "base/xxh3.h"
#include "checkpoint/store/run_folder.h"
#include "parallel/comm/core/abort_state.h"
#include "parallel/comm/core/agreement.h"

namespace tessera {
namespace {

// One write: so that hashing and writing find the bytes in the cache.
constexpr int64_t kWriteBytes = int64_t{4} << 20;

class StepSave {
 public:
  StepSave(const SavePlace& place, SaveWork work, Communicator& group)
      : place_(place),
        work_(std::move(work)),
        group_(group),
        target_(place.dir / step_dir_name(work_.manifest.step)) {}

  std::filesystem::path run() {
    try {
      if (!place_.staging_dir.empty())
        agree(group_, [&] {
          staged_ = write_rank_file(staging_file(place_, group_.rank()));
          return std::string();
        });
      begin();
      const std::vector<std::string> written = agree(group_, [&] { return own_file(); });
      agree(group_, [&] {
        if (group_.rank() == 0) commit(written);
        return std::string();
      });
    } catch (const Error&) {
      give_up();
      throw;
    }
    return target_;
  }

 private:
  void begin();
  void warn_of_left_overs();
  void warn_of_space(const std::vector<std::string>& needs);
  std::string own_file();
  WrittenFile write_rank_file(const std::filesystem::path& path);
  void commit(const std::vector<std::string>& written);
  void point_latest_to_it();
  void give_up();

  const SavePlace& place_;
  SaveWork work_;
  Communicator& group_;
  const std::filesystem::path target_;
  std::filesystem::path partial_;
  WrittenFile staged_;
};

// Rank 0 makes the folder, and all learn its name and what is to be written.
void StepSave::begin() {
  const std::vector<std::string> told = agree(group_, [&]() -> std::string {
    const int64_t bytes = total_bytes(work_.parts);
    if (group_.rank() != 0) return std::to_string(bytes);
    place_.check_ours();
    if (is_committed(target_))
      fail("checkpoint",
           "{} is committed already; a committed checkpoint is never written over, move it away "
           "to save this step again",
           target_.string());
    place_.probe("begin");
    warn_of_left_overs();
    // step-N without a manifest: not a checkpoint, but not ours to delete either.
    if (type_of(target_) != std::filesystem::file_type::not_found)
      place_.warn(fmt::format("{} is not a whole checkpoint; moved to {}", target_.string(),
                              set_aside(target_).string()));
    const std::filesystem::path free = free_name(target_, place_.names.suffix());
    make_folders(free);
    place_.probe("partial made");
    return fmt::format("{} {}", bytes, free.string());
  });
  partial_ = told[0].substr(told[0].find(' ') + 1);
  if (group_.rank() == 0) warn_of_space(told);
}

// Removes left-overs. A failure is only a warning: the save that follows does not depend on it.
void StepSave::warn_of_left_overs() {
  try {
    for (const std::string& failure : remove_left_overs(place_.dir, place_.names))
      place_.warn(failure);
  } catch (const std::exception& failure) {
    place_.warn(failure.what());
  }
}

// Only a warning: what a file system says of its free space is an estimate (quotas, compression),
// and whether the save fits shows when it is written.
void StepSave::warn_of_space(const std::vector<std::string>& needs) {
  int64_t bytes = 0;
  for (const std::string& need : needs) bytes += std::stoll(need);
  const auto free = free_bytes(place_.dir);
  if (free && *free < bytes)
    place_.warn(fmt::format(
        "{} needs {}, and {} has {} free: this save will probably fail; free some "
        "space, or keep fewer checkpoints (checkpoint.keep)",
        target_.filename().string(), bytes_text(bytes), place_.dir.string(), bytes_text(*free)));
}

// This rank's line about its file, which is in the folder when this returns.
std::string StepSave::own_file() {
  // Rank 0 has made it; on a network file system this also brings it into the local cache.
  make_folders(partial_);
  const std::filesystem::path path = partial_ / rank_file_name(group_.rank());
  WrittenFile written;
  if (place_.staging_dir.empty()) {
    written = write_rank_file(path);
  } else {
    const std::filesystem::path staged = staging_file(place_, group_.rank());
    copy_bytes(staged, path);
    sync_file(path);
    remove_tree(staged);
    written = std::move(staged_);
    written.file.name = path.filename().string();
  }
  place_.probe("file written");
  return written.to_text();
}

WrittenFile StepSave::write_rank_file(const std::filesystem::path& path) {
  std::vector<FilePiece> pieces;
  for (const OwnPart& part : work_.parts) pieces.push_back(part.piece);
  RankFileWriter writer(path, work_.manifest, pieces);
  place_.probe("file begun");
  for (const FilePiece& piece : pieces) {
    for (int64_t done = 0; done < piece.bytes();) {
      // A world that is being ended waits for nobody: what is written now would not be committed.
      if (group_.abort_state()->raised())
        fail("checkpoint", "the save of {} was given up: {}", target_.filename().string(),
             group_.abort_state()->reason());
      const auto bytes = work_.bytes.next(std::min(kWriteBytes, piece.bytes() - done));
      writer.append(bytes.data(), std::ssize(bytes));
      done += std::ssize(bytes);
    }
    place_.probe("piece written");
  }
  return writer.finish();
}

void StepSave::commit(const std::vector<std::string>& written) {
  place_.probe("all agreed");
  place_.check_ours();
  Manifest& manifest = work_.manifest;
  write_piece_index(partial_, written, manifest);
  place_.probe("index written");
  for (const ManifestFile& listed : manifest.files) {
    const std::filesystem::path path = partial_ / listed.name;
    if (!wait_until_visible(path, listed.size))
      fail(
          "checkpoint",
          "rank 0 does not see {} with the {} bytes that were written, after {} s; run.dir must be "
          "on a file system that all nodes share",
          path.string(), listed.size,
          std::chrono::duration_cast<std::chrono::seconds>(kLateFileLimit).count());
  }
  work_.before_commit();
  write_manifest(partial_, manifest);
  place_.probe("manifest written");
  sync_folder(partial_);
  place_.probe("folder synced");
  place_.check_ours();
  rename_path(partial_, target_);
  place_.probe("renamed");
  sync_folder(place_.dir);
  place_.probe("committed");
  point_latest_to_it();
}

// A failure is only a warning: after the commit the checkpoint stands, so the save has succeeded.
void StepSave::point_latest_to_it() {
  try {
    write_file_atomic(place_.dir / "latest", target_.filename().string() + "\n");
    place_.probe("latest replaced");
  } catch (const std::exception& failure) {
    place_.warn(fmt::format("{} is saved, but {}", target_.filename().string(), failure.what()));
  }
}

// On a full disk the run needs the space that a failed save has taken. What stays is removed by the
// next save.
void StepSave::give_up() {
  if (!place_.staging_dir.empty()) remove_tree(staging_file(place_, group_.rank()));
  if (group_.rank() == 0 && !partial_.empty()) remove_tree(partial_);
}

}  // namespace

std::filesystem::path save_step(const SavePlace& place, SaveWork work, Communicator& group) {
  return StepSave(place, std::move(work), group).run();
}

std::filesystem::path staging_file(const SavePlace& place, int rank) {
  const std::string run = std::filesystem::absolute(place.dir).lexically_normal().string();
  return place.staging_dir /
         fmt::format("tessera-{}-{}", xxh3_hex(run.data(), run.size()), rank_file_name(rank));
}

bool is_committed(const std::filesystem::path& step_dir) {
  return is_file(step_dir / "manifest.json");
}

}  // namespace tessera

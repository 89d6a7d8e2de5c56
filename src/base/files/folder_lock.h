#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/files/owner_file.h"
#include "base/process/process_identity.h"

namespace tessera {

// clang-format off
// Keeps other processes out of a folder while this object lives: an exclusive lock (flock) on
// FOLDER/.lock, which the system drops when the process ends, however it ends. Where the file
// system has no locks, the file FOLDER/.owner takes its place (owner_file.h), and warning() says
// so. Both name who holds the folder.
//
//   newcomer   .lock is free                        -> its own
//              another run holds it                 -> refused
//              an earlier turn of its Slurm job     -> waits `Times::turn` for its end, then takes over
//
// Slurm requeues a job when a node does not answer. A process on such a node may live, and its lock
// with it: on the server of the file system, or on the node alone. So taking over does not need the
// old lock. The newcomer locks a file of its own and renames it to .lock, which is one step. From
// then on it holds the folder for all who come later, and the old process, which looks at the name
// .lock anew in each check(), finds another file there and ends (ReplacedError).
//
// What that guarantees: after the rename no check() of the old process passes. What is left is what
// it had begun to do when its last check passed, however long it was stopped since; who writes
// under this lock must make that harmless (checkpoint/store/step_save.h, training/output/metrics.h).
// Two newer turns that come at the same moment may both rename; after `Times::settle` each looks
// which of them stands, so at most one goes on. Slurm runs one turn at a time.
// clang-format on
class FolderLock {
 public:
  // `say` is called with a line for the user before the constructor waits: for the end of an
  // earlier turn, or to see whether the owner of a FOLDER/.owner still lives. `give_up` is called
  // now and then meanwhile; what it throws ends the wait. UserError that names the holder if the
  // folder is in use.
  explicit FolderLock(const std::filesystem::path& folder,
                      const std::function<void(const std::string&)>& say = {},
                      OwnerFile::Times times = {}, const std::function<void()>& give_up = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // What the file system lacks; empty if locks work.
  const std::string& warning() const { return warning_; }
  // Whether this process has put an earlier one off that may still run.
  bool took_over() const { return took_over_; }

  // ReplacedError if another process has taken the folder over; Error if that cannot be told now.
  // From any thread.
  void check() const;
  // Whether another process has certainly taken the folder over.
  bool replaced() const;

  // Names a file of the folder, and this process in it; empty where it could not be written there.
  std::string token() const;
  // The same as replaced() for who does not hold the lock, such as another rank of the start:
  // whether the file names somebody else than the process of `token`. False where it names nobody,
  // or cannot be read.
  static bool names_other(const std::filesystem::path& folder, const std::string& token);

 private:
  void open();
  bool wait_for_turn(const ProcessIdentity& holder, const std::function<void(const std::string&)>&,
                     OwnerFile::Times, const std::function<void()>& give_up);
  void take_over(OwnerFile::Times times);
  bool is_at_path() const;
  void write_name();
  enum class Sight { kOurs, kReplaced, kUnknown };
  Sight look(std::string& other) const;

  std::filesystem::path path_;
  const ProcessIdentity self_ = ProcessIdentity::own();
  int fd_ = -1;
  dev_t device_ = 0;  // of the file that fd_ is
  ino_t file_ = 0;
  bool named_ = false;  // the file holds this process's name
  bool took_over_ = false;
  std::unique_ptr<OwnerFile> owner_;
  std::string warning_;
};

}  // namespace tessera

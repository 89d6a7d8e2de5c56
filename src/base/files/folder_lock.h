#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/files/owner_file.h"

namespace tessera {

// Keeps other processes out of a folder while this object lives: an exclusive lock (flock) on
// FOLDER/.lock, which the system drops when the process ends, however it ends. Where the file
// system has no locks, the file FOLDER/.owner takes its place (owner_file.h), and warning() says
// so. The constructor throws a UserError that names the other process if one holds the folder.
class FolderLock {
 public:
  // `say` is called with a line for the user before the constructor waits to see whether the owner
  // of a FOLDER/.owner still lives.
  explicit FolderLock(const std::filesystem::path& folder,
                      const std::function<void(const std::string&)>& say = {},
                      OwnerFile::Times times = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // What the file system lacks; empty if locks work.
  const std::string& warning() const { return warning_; }

  // Error if another process has taken the folder over; where locks work, that cannot happen.
  void check() const;

 private:
  int fd_ = -1;
  std::unique_ptr<OwnerFile> owner_;
  std::string warning_;
};

}  // namespace tessera

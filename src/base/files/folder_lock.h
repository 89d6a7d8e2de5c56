#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/files/owner_file.h"

namespace tessera {

// Keeps others out of a folder while it lives: an exclusive lock (flock) on FOLDER/.lock, which the
// system drops when the process ends, however it ends. Where the file system has no locks, the file
// FOLDER/.owner stands in (owner_file.h), and warning() says so. UserError that names who holds it
// if another process does.
class FolderLock {
 public:
  // `say` takes a line where a wait for another process begins.
  explicit FolderLock(const std::filesystem::path& folder,
                      const std::function<void(const std::string&)>& say = {},
                      OwnerFile::Times times = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // What the file system lacks; empty if locks work.
  const std::string& warning() const { return warning_; }

  // Error if the folder is another process's by now; never where locks work.
  void check() const;

 private:
  int fd_ = -1;
  std::unique_ptr<OwnerFile> owner_;
  std::string warning_;
};

}  // namespace tessera

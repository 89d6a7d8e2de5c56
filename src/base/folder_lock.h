#pragma once

#include <filesystem>

namespace tessera {

// Keeps others out of a folder while it lives: an exclusive lock (flock) on FOLDER/.lock, which the
// system drops when the process ends, however it ends. UserError if another process holds it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace tessera

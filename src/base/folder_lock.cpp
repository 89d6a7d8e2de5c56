#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tessera {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / ".lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("files", "cannot open {}: {}", path.string(), std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno == ENOTSUP || errno == ENOLCK) return;
  const int error = errno;
  ::close(fd_);
  if (error == EWOULDBLOCK)
    fail_user("files", "{} is in use by another run; wait for it, or choose another run.dir",
              folder.string());
  fail("files", "cannot lock {}: {}", path.string(), std::strerror(error));
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

}  // namespace tessera

#include "base/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/system_error.h"

namespace tessera {
namespace {

// Who holds the lock, as it has written into the file; for people.
std::string holder(int fd) {
  char text[4096];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  const auto owner =
      ProcessIdentity::parse({text, size > 0 ? static_cast<size_t>(size) : size_t{0}});
  return owner.token.empty() ? "" : fmt::format(" ({})", owner.describe());
}

// Writes into the lock's file who holds it. Failures are ignored: others are then refused without a
// name.
void write_name(int fd) {
  const std::string text = ProcessIdentity::own().to_text() + "\n";
  if (::ftruncate(fd, 0) == 0 || errno == ENOSYS)
    static_cast<void>(::pwrite(fd, text.data(), text.size(), 0) < 0);
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder,
                       const std::function<void(const std::string&)>& say, OwnerFile::Times times) {
  const std::filesystem::path path = folder / ".lock", owner = folder / ".owner";
  const std::string refusal = fmt::format("{} is in use by another run", folder.string());
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0 && errno == EACCES) fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0)
    fail_user("files", "cannot open {}: {}; choose another folder", path.string(),
              reason_of(errno));
  try {
    int error = 0;
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && (error = errno) == EINTR) error = 0;
    if (error == EWOULDBLOCK)
      fail_user("files", "{}{}; wait for it, or choose another run.dir", refusal, holder(fd_));
    if (error == 0) {
      // A process on another machine, where this folder has no locks, may hold it by its .owner.
      OwnerFile::expect_none(owner, refusal, say, times);
      write_name(fd_);
      return;
    }
    owner_ = std::make_unique<OwnerFile>(owner, refusal, say, times);
    warning_ = fmt::format(
        "the file system of {} has no locks ({}): {} keeps other runs out; after this process is "
        "killed, a start on another machine waits {} s for a sign of life",
        folder.string(), reason_of(error), owner.filename().string(),
        std::chrono::duration_cast<std::chrono::seconds>(times.silent).count());
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

void FolderLock::check() const {
  if (owner_) owner_->check();
}

}  // namespace tessera

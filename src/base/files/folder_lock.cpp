#include "base/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/files/files.h"
#include "base/system_error.h"

namespace tessera {
namespace {

using Say = std::function<void(const std::string&)>;

// Who holds the lock, as it has written into the file.
ProcessIdentity holder_of(int fd) {
  char text[4096];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  return ProcessIdentity::parse({text, size > 0 ? static_cast<size_t>(size) : size_t{0}});
}

std::string in_brackets(const ProcessIdentity& holder) {
  return holder.token.empty() ? "" : fmt::format(" ({})", holder.describe());
}

// 0, or the errno with which the lock was not got.
int try_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

int64_t seconds(std::chrono::milliseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, const Say& say, OwnerFile::Times times,
                       const std::function<void()>& give_up)
    : path_(folder / ".lock") {
  const std::filesystem::path owner = folder / ".owner";
  const std::string refusal = fmt::format("{} is in use by another run", folder.string());
  try {
    int error = 0;
    // Again where another process has taken the name over while this one waited for the lock.
    do {
      open();
      error = try_lock(fd_);
      if (error != EWOULDBLOCK) continue;
      const ProcessIdentity holder = holder_of(fd_);
      if (!self_.is_later_turn_of(holder))
        fail_user("files", "{}{}; wait for it, or choose another run.dir", refusal,
                  in_brackets(holder));
      error = 0;
      if (wait_for_turn(holder, say, times, give_up)) continue;
      take_over(times);
      if (say)
        say(
            fmt::format("{}: it did not end in {} s; this start takes over. If that process still "
                        "runs, its next line or save ends it, with exit code 4",
                        folder.string(), seconds(times.turn)));
    } while (error == 0 && !is_at_path());
    if (error == 0) {
      // A process on another machine, where this folder has no locks, may hold it by its .owner.
      took_over_ = OwnerFile::expect_none(owner, refusal, say, times, give_up) || took_over_;
      write_name();
      return;
    }
    owner_ = std::make_unique<OwnerFile>(owner, refusal, say, times, give_up);
    took_over_ = owner_->took_over();
    warning_ = fmt::format(
        "the file system of {} has no locks ({}): {} keeps other runs out; after this process is "
        "killed, a start on another machine waits {} s for a sign of life",
        folder.string(), reason_of(error), owner.filename().string(), seconds(times.silent));
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

void FolderLock::open() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0 && errno == EACCES) fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0)
    fail_user("files", "cannot open {}: {}; choose another folder", path_.string(),
              reason_of(errno));
}

// True if the lock was got because the earlier turn has ended.
bool FolderLock::wait_for_turn(const ProcessIdentity& holder, const Say& say,
                               OwnerFile::Times times, const std::function<void()>& give_up) {
  if (say)
    say(
        fmt::format("{} is held by an earlier turn of this job ({}): waiting up to {} s for its "
                    "end",
                    folder_of(path_).string(), holder.describe(), seconds(times.turn)));
  const auto end = std::chrono::steady_clock::now() + times.turn;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(times.look, times.turn));
    if (give_up) give_up();
    if (try_lock(fd_) == 0) return true;
    if (!is_at_path()) return true;  // somebody else was quicker: the caller looks anew
  }
  return false;
}

// Puts a locked file of this process's own in the place of .lock.
void FolderLock::take_over(OwnerFile::Times times) {
  const std::filesystem::path own = fmt::format("{}.{}", path_.string(), self_.token);
  const int fd = ::open(own.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) fail("files", "cannot create {}: {}", own.string(), reason_of(errno));
  ::close(fd_);
  fd_ = fd;
  try {
    if (const int error = try_lock(fd_); error != 0)
      fail("files", "cannot lock {}: {}", own.string(), reason_of(error));
    write_name();
    rename_path(own, path_);
    sync_folder(folder_of(path_));
  } catch (...) {
    ::unlink(own.c_str());
    throw;
  }
  took_over_ = true;
  std::this_thread::sleep_for(times.settle);
  check();
}

// Whether the file that fd_ is still has the name .lock.
bool FolderLock::is_at_path() const {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd_, &ours) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

// Writes into the lock's file who holds it. Where that fails (it is another user's), others are
// refused without a name, and check() goes by the file alone.
void FolderLock::write_name() {
  struct stat info {};
  if (::fstat(fd_, &info) == 0) {
    device_ = info.st_dev;
    file_ = info.st_ino;
  }
  const std::string text = self_.to_text() + "\n";
  if (::ftruncate(fd_, 0) == 0 || errno == ENOSYS)
    named_ = ::pwrite(fd_, text.data(), text.size(), 0) == std::ssize(text);
}

// Opens the name anew: that makes a network file system ask its server. `other`: who is there.
FolderLock::Sight FolderLock::look(std::string& other) const {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  // Removed by hand: still ours, as long as nobody makes it anew.
  if (fd < 0) return errno == ENOENT ? Sight::kOurs : Sight::kUnknown;
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  const ProcessIdentity holder = holder_of(fd);
  ::close(fd);
  if (!known) return Sight::kUnknown;
  other = in_brackets(holder);
  if (info.st_dev != device_ || info.st_ino != file_) return Sight::kReplaced;
  // Numbers of files are given out again, so the name decides where there is one.
  return named_ && !holder.token.empty() && holder.token != self_.token ? Sight::kReplaced
                                                                        : Sight::kOurs;
}

void FolderLock::check() const {
  if (owner_) return owner_->check();
  std::string other;
  switch (look(other)) {
    case Sight::kOurs:
      return;
    case Sight::kUnknown:
      fail("files", "cannot read {}, which says whose the folder is", path_.string());
    case Sight::kReplaced:
      throw ReplacedError(
          fmt::format("[files] another start of this run has taken {} over{}; this one ends and "
                      "writes nothing more",
                      folder_of(path_).string(), other));
  }
}

std::string FolderLock::token() const {
  if (owner_) return fmt::format(".owner {}", owner_->token());
  return named_ ? fmt::format(".lock {}", self_.token) : "";
}

bool FolderLock::names_other(const std::filesystem::path& folder, const std::string& token) {
  if (token.empty()) return false;
  const size_t space = token.find(' ');
  const int fd = ::open((folder / token.substr(0, space)).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const std::string holder = holder_of(fd).token;
  ::close(fd);
  return !holder.empty() && holder != token.substr(space + 1);
}

bool FolderLock::replaced() const {
  std::string other;
  return owner_ ? owner_->replaced() : look(other) == Sight::kReplaced;
}

}  // namespace tessera

#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

constexpr int64_t kMaxTransfer = int64_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB in one call

// strerror() is not thread-safe; strerror_r's GNU form is.
std::string reason(int error) {
  char buffer[256];
  return strerror_r(error, buffer, sizeof buffer);
}

}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File File::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO must not hang.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG)
      fail_user("files", "cannot open {}: {}; check the path", path.string(), reason(error));
    fail("files", "cannot open {}: {}", path.string(), reason(error));
  }
  File file(fd, path);
  struct stat info {};
  if (fstat(fd, &info) != 0) fail("files", "cannot stat {}: {}", path.string(), reason(errno));
  if (!S_ISREG(info.st_mode))
    fail_user("files", "{} is not a regular file; give the path of a file", path.string());
  return file;
}

File File::create(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    fail("files", "cannot create {}: {}; check that the folder exists and is writable",
         path.string(), reason(errno));
  return File(fd, path);
}

int64_t File::size() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) fail("files", "cannot stat {}: {}", path_.string(), reason(errno));
  return info.st_size;
}

void File::read_at(void* data, int64_t bytes, int64_t offset) const {
  auto* to = static_cast<char*>(data);
  for (int64_t done = 0; done < bytes;) {
    const int64_t want = std::min(bytes - done, kMaxTransfer);
    const ssize_t got = ::pread(fd_, to + done, static_cast<size_t>(want), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail("files", "cannot read {} bytes at {} of {}: {}", want, offset + done, path_.string(),
           reason(errno));
    if (got == 0)
      fail_damaged("files", "{} ends at byte {}, {} bytes at {} were wanted; it is truncated",
                   path_.string(), size(), bytes, offset);
    done += got;
  }
}

void File::write_at(const void* data, int64_t bytes, int64_t offset) {
  const auto* from = static_cast<const char*>(data);
  for (int64_t done = 0; done < bytes;) {
    const int64_t want = std::min(bytes - done, kMaxTransfer);
    const ssize_t put = ::pwrite(fd_, from + done, static_cast<size_t>(want), offset + done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      fail("files", "cannot write {} bytes at {} of {}: {}", want, offset + done, path_.string(),
           reason(put < 0 ? errno : ENOSPC));
    done += put;
  }
}

void File::sync() {
  if (fsync(fd_) != 0) fail("files", "cannot sync {}: {}", path_.string(), reason(errno));
}

void File::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR)
    fail("files", "cannot close {}: {}", path_.string(), reason(errno));
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("files", "cannot open folder {}: {}", folder.string(), reason(errno));
  const int status = fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync folders and say EINVAL: their names are durable in another way.
  if (status != 0 && error != EINVAL)
    fail("files", "cannot sync folder {}: {}", folder.string(), reason(error));
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail("files", "cannot rename {} to {}: {}", from.string(), to.string(), reason(errno));
}

void write_file_atomic(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path folder = folder_of(path);
  const std::filesystem::path temporary = folder / fmt::format(".{}.tmp", path.filename().string());
  File file = File::create(temporary);
  file.write_at(text.data(), static_cast<int64_t>(text.size()), 0);
  file.sync();
  file.close();
  rename_path(temporary, path);
  sync_folder(folder);
}

std::string read_small_file(const std::filesystem::path& path, int64_t limit) {
  const File file = File::open(path);
  const int64_t size = file.size();
  if (size > limit)
    fail_user("files", "{} has {} bytes, at most {} are read of such a file", path.string(), size,
              limit);
  std::string text(static_cast<size_t>(size), '\0');
  file.read_at(text.data(), size, 0);
  return text;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::filesystem::path clean_path(const std::filesystem::path& path) {
  std::filesystem::path clean = path.lexically_normal();
  if (!clean.has_filename() && clean.has_relative_path()) clean = clean.parent_path();
  return clean;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return folder.empty() ? std::filesystem::path(".") : folder;
}

}  // namespace tessera

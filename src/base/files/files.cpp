#include "base/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/system_error.h"

namespace tessera {
namespace {

constexpr int64_t kMaxTransfer = int64_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB in one call

// Writes from this size on begin their way to the disk at once.
constexpr int64_t kWriteBackBytes = int64_t{256} << 10;

// How many temporary names write_file_atomic() tries: the first may be taken by something that is
// not ours to replace.
constexpr int kTemporaryNames = 9;

// fsync(). True if it succeeded or the file system does not have it; `error` is its errno unless it
// succeeded.
bool sync_or_unsupported(int fd, int& error) {
  if (fsync(fd) == 0) return true;
  error = errno;
  return is_sync_unsupported(error);
}

// Lets the disk work beside what the caller does next, so that the fsync at the end finds little
// left. Only a hint: where it cannot be followed, fsync does all, and it is fsync that reports what
// could not be written.
void start_write_back(int fd, int64_t offset, int64_t bytes) {
  ::sync_file_range(fd, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

int open_for_writing(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (fd < 0)
    fail("files", "cannot create {}: {}; check that the folder exists and is writable",
         path.string(), reason_of(errno));
  return fd;
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
      fail_user("files", "cannot open {}: {}; check the path", path.string(), reason_of(error));
    fail("files", "cannot open {}: {}", path.string(), reason_of(error));
  }
  File file(fd, path);
  struct stat info {};
  if (fstat(fd, &info) != 0) fail("files", "cannot stat {}: {}", path.string(), reason_of(errno));
  if (!S_ISREG(info.st_mode))
    fail_user("files", "{} is not a regular file; give the path of a file", path.string());
  return file;
}

File File::create(const std::filesystem::path& path) {
  return File(open_for_writing(path, O_TRUNC), path);
}

File File::open_to_write(const std::filesystem::path& path) {
  return File(open_for_writing(path, 0), path);
}

int64_t File::size() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) fail("files", "cannot stat {}: {}", path_.string(), reason_of(errno));
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
           reason_of(errno));
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
           reason_of(put < 0 ? errno : ENOSPC));
    done += put;
  }
  if (bytes >= kWriteBackBytes) start_write_back(fd_, offset, bytes);
}

void File::sync() {
  int error = 0;
  if (!sync_or_unsupported(fd_, error))
    fail("files", "cannot sync {}: {}", path_.string(), reason_of(error));
}

void File::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR)
    fail("files", "cannot close {}: {}", path_.string(), reason_of(errno));
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == EACCES || is_unsupported(errno)) return;  // writable, but not readable
    fail("files", "cannot open folder {}: {}", folder.string(), reason_of(errno));
  }
  int error = 0;
  const bool fine = sync_or_unsupported(fd, error);
  ::close(fd);
  if (!fine) fail("files", "cannot sync folder {}: {}", folder.string(), reason_of(error));
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail("files", "cannot rename {} to {}: {}", from.string(), to.string(), reason_of(errno));
}

void write_file_atomic(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path folder = folder_of(path);
  File file;
  for (int number = 1; !file.is_open(); ++number) {
    const std::filesystem::path temporary = temporary_name(path, number);
    try {
      file = File::create(temporary);
    } catch (const Error&) {
      std::error_code ignored;  // a left-over that cannot be replaced is no reason to fail
      if (number == kTemporaryNames || !std::filesystem::exists(temporary, ignored)) throw;
    }
  }
  const std::filesystem::path temporary = file.path();
  try {
    file.write_at(text.data(), static_cast<int64_t>(text.size()), 0);
    file.sync();
    file.close();
    rename_path(temporary, path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());  // on a full disk the next attempt needs its bytes
    throw;
  }
  sync_folder(folder);
}

std::filesystem::path temporary_name(const std::filesystem::path& path, int number) {
  const std::string name = path.filename().string();
  return folder_of(path) /
         (number == 1 ? fmt::format(".{}.tmp", name) : fmt::format(".{}.{}.tmp", name, number));
}

std::vector<std::string> remove_temporaries(const std::filesystem::path& path) {
  std::vector<std::string> failures;
  for (int number = 1; number <= kTemporaryNames; ++number) {
    const std::filesystem::path temporary = temporary_name(path, number);
    if (::unlink(temporary.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR)
      failures.push_back(fmt::format("cannot remove {}: {}", temporary.string(), reason_of(errno)));
  }
  return failures;
}

std::string remove_tree(const std::filesystem::path& path) {
  std::string first;
  const auto failed = [&](const std::filesystem::path& what, const std::string& why) {
    if (first.empty()) first = fmt::format("cannot remove {}: {}", what.string(), why);
  };
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) failed(path, reason_of(errno));
    return first;
  }
  if (!S_ISDIR(info.st_mode)) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) failed(path, reason_of(errno));
    return first;
  }
  std::error_code error;
  std::vector<std::filesystem::path> inside;  // listed first: removing must not move the listing
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error))
    inside.push_back(at->path());
  if (error) failed(path, error.message());
  for (const auto& entry : inside) {
    const std::string why = remove_tree(entry);
    if (first.empty()) first = why;
  }
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) failed(path, reason_of(errno));
  return first;
}

std::filesystem::file_type type_of(const std::filesystem::path& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::none)
    fail("files", "cannot look at {}: {}", path.string(), error.message());
  return type;
}

std::filesystem::file_type type_of_input(const std::filesystem::path& path) {
  try {
    return type_of(path);
  } catch (const Error& failure) {
    throw UserError(failure.what());
  }
}

bool is_file(const std::filesystem::path& path) {
  return type_of(path) == std::filesystem::file_type::regular;
}

bool is_folder(const std::filesystem::path& path) {
  return type_of(path) == std::filesystem::file_type::directory;
}

std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    entries.push_back(at->path());
  if (error) fail("files", "cannot list {}: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("files", "cannot make the folder {}: {}", folder.string(), error.message());
}

void copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to) {
  const File source = File::open(from);
  File target = File::create(to);
  std::vector<char> buffer(size_t{1} << 20);
  const int64_t size = source.size();
  for (int64_t done = 0; done < size;) {
    const int64_t part = std::min(static_cast<int64_t>(buffer.size()), size - done);
    source.read_at(buffer.data(), part, done);
    target.write_at(buffer.data(), part, done);
    done += part;
  }
  target.close();
}

void sync_file(const std::filesystem::path& path) {
  File::open(path).sync();
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

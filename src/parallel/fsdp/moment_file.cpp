#include "parallel/fsdp/moment_file.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/system_error.h"

namespace tessera {
namespace {

// Opens a new file and removes its name at once, so that nothing is left behind, whatever ends the
// process. Where names of open files cannot be removed, `path` becomes the name, to be removed at
// the end; else it becomes empty.
int open_unnamed(const std::filesystem::path& folder, std::string& path) {
  path = folder / "tessera-moments-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0)
    fail_user("moments",
              "no file can be made in {}: {}; name an existing folder on a local disk that this "
              "user can write to",
              folder.string(), reason_of(errno));
  if (unlink(path.c_str()) == 0) path.clear();
  return file;
}

// Reserves `bytes` bytes of the disk for the file; returns 0 or an errno. Without that the process
// would be killed when it touches a page of the mapping for which the disk has no room. Where the
// file system has no call for it, zeros are written.
int reserve(int file, int64_t bytes) {
  const int error = posix_fallocate(file, 0, bytes);
  if (!is_unsupported(error) || error == 0) return error;
  const std::vector<char> zeros(size_t{1} << 20);
  for (int64_t at = 0; at < bytes;) {
    const auto part = std::min(static_cast<int64_t>(zeros.size()), bytes - at);
    const ssize_t written = pwrite(file, zeros.data(), static_cast<size_t>(part), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    at += written;
  }
  return 0;
}

}  // namespace

MomentFile::MomentFile(const std::filesystem::path& folder, int64_t bytes)
    : folder_(folder.string()), bytes_(bucket_bytes(bytes)) {
  if (bytes <= 0)
    fail_user("moments",
              "there are no moments to put in {}, since the optimizer keeps none; name no folder",
              folder_);
  file_ = open_unnamed(folder, name_);
  try {
    struct statfs system {};
    const bool known = fstatfs(file_, &system) == 0;
    if (!known && !is_unsupported(errno))
      fail("moments", "cannot stat the file system of {}: {}", folder_, reason_of(errno));
    if (known && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC))
      fail_user(
          "moments",
          "{} lies in memory (tmpfs), so moments there would take as much of it as without; name a "
          "folder on a disk, or none",
          folder_);
    const int64_t free = static_cast<int64_t>(system.f_bavail) * system.f_bsize;
    const int error = known && bytes_ > free ? ENOSPC : reserve(file_, bytes_);
    if (error == ENOSPC)
      fail_user("moments",
                "this rank needs {} bytes in {}, where {} are free (other "
                "ranks of the node take theirs there too); free some, name another disk, or use "
                "more ranks",
                bytes_, folder_, free);
    if (error != 0)
      fail_user("moments", "{} bytes cannot be reserved in {}: {}; name another disk", bytes_,
                folder_, reason_of(error));
    void* memory =
        mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED && is_unsupported(errno)) {
      warning_ = fmt::format(
          "the file system of {} cannot map files ({}): the moments stay in "
          "memory, {} bytes on each rank",
          folder_, reason_of(errno), bytes_);
      close_file();
      memory = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED)
      fail("moments", "cannot map {} bytes of a file in {}: {}", bytes_, folder_, reason_of(errno));
    memory_ = static_cast<std::byte*>(memory);
  } catch (...) {
    close_file();
    throw;
  }
}

MomentFile::~MomentFile() {
  munmap(memory_, static_cast<size_t>(bytes_));
  close_file();
}

void MomentFile::close_file() noexcept {
  if (file_ >= 0) close(std::exchange(file_, -1));
  if (!name_.empty()) unlink(name_.c_str());
}

StoredMoments MomentFile::add_bucket(int count, int64_t numel, at::ScalarType dtype) {
  const int64_t each = numel * static_cast<int64_t>(c10::elementSize(dtype));
  const Region region{used_, bucket_bytes(count * each)};
  if (region.offset + region.bytes > bytes_)
    fail("moments", "the file in {} has {} bytes; a bucket needs {} after {}", folder_, bytes_,
         region.bytes, region.offset);
  used_ += region.bytes;
  regions_.push_back(region);
  StoredMoments stored{static_cast<int>(regions_.size()) - 1, {}};
  for (int i = 0; i < count; ++i)
    stored.moments.push_back(at::from_blob(memory_ + region.offset + i * each, {numel}, dtype));
  return stored;
}

void MomentFile::begin(int bucket) {
  if (error_ != 0)
    fail("moments", "moments could not be written to a file in {}: {}", folder_, reason_of(error_));
  const auto index = static_cast<size_t>(bucket);
  read_ahead(regions_.at(index));
  if (index + 1 < regions_.size()) read_ahead(regions_[index + 1]);
}

void MomentFile::end(int bucket) noexcept {
  leave(regions_[static_cast<size_t>(bucket)]);
  if (last_ >= 0 && last_ != bucket) forget(regions_[static_cast<size_t>(last_)]);
  last_ = bucket;
}

void MomentFile::release() {
  for (const Region& region : regions_) leave(region);
  for (const Region& region : regions_) forget(region);
}

void MomentFile::read_ahead(const Region& region) const {
  if (file_ < 0) return;
  // Only advice: without it pages come one fault at a time.
  madvise(memory_ + region.offset, static_cast<size_t>(region.bytes), MADV_WILLNEED);
}

// Starts the write-back and takes the pages from this process; the kernel keeps them until
// forget().
void MomentFile::leave(const Region& region) noexcept {
  if (file_ < 0) return;
  write_back(region, SYNC_FILE_RANGE_WRITE);
  madvise(memory_ + region.offset, static_cast<size_t>(region.bytes), MADV_DONTNEED);
}

// Where the file system has no such call, the kernel writes back when it sees fit, which is no
// error.
void MomentFile::write_back(const Region& region, unsigned flags) noexcept {
  if (sync_file_range(file_, region.offset, region.bytes, flags) == 0) return;
  if (error_ == 0 && !is_unsupported(errno) && errno != ESPIPE) error_ = errno;
}

// Waits for the write-back, after which the kernel may drop the pages too. This bounds what waits
// to be written, where the disk is slower than the updates.
void MomentFile::forget(const Region& region) noexcept {
  constexpr unsigned kWritten =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (file_ < 0) return;
  write_back(region, kWritten);
  posix_fadvise(file_, region.offset, region.bytes, POSIX_FADV_DONTNEED);
}

}  // namespace tessera

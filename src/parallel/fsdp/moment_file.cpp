#include "parallel/fsdp/moment_file.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace tessera {
namespace {

std::string reason(int error) {
  return std::generic_category().message(error);
}

int open_unnamed(const std::filesystem::path& folder) {
  std::string path = folder / "tessera-moments-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0)
    fail_user("moments",
              "memory.offload_dir: no file can be made in {}: {}; name an existing folder on a "
              "local disk that this user can write to",
              folder.string(), reason(errno));
  unlink(path.c_str());
  return file;
}

}  // namespace

MomentFile::MomentFile(const std::filesystem::path& folder, int64_t bytes)
    : folder_(folder.string()), bytes_(bucket_bytes(bytes)) {
  if (bytes <= 0)
    fail_user(
        "moments",
        "memory.offload_dir: {}; there are no moments to put there, since the optimizer keeps "
        "none; leave it out",
        folder_);
  file_ = open_unnamed(folder);
  try {
    struct statfs system {};
    if (fstatfs(file_, &system) != 0)
      fail("moments", "cannot stat the file system of {}: {}", folder_, reason(errno));
    if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)
      fail_user(
          "moments",
          "memory.offload_dir: {} lies in memory (tmpfs), so moments there would take as much "
          "of it as without; name a folder on a disk, or leave memory.offload_dir out",
          folder_);
    const int64_t free = static_cast<int64_t>(system.f_bavail) * system.f_bsize;
    const int error = bytes_ > free ? ENOSPC : posix_fallocate(file_, 0, bytes_);
    if (error == ENOSPC)
      fail_user("moments",
                "memory.offload_dir: this rank needs {} bytes in {}, where {} are free (other "
                "ranks of the node take theirs there too); free some, name another disk, or use "
                "more ranks",
                bytes_, folder_, free);
    if (error != 0)
      fail_user("moments",
                "memory.offload_dir: {} bytes cannot be reserved in {}: {}; name another disk",
                bytes_, folder_, reason(error));
    void* memory =
        mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED)
      fail("moments", "cannot map {} bytes of a file in {}: {}", bytes_, folder_, reason(errno));
    memory_ = static_cast<std::byte*>(memory);
  } catch (...) {
    close(file_);
    throw;
  }
}

MomentFile::~MomentFile() {
  munmap(memory_, static_cast<size_t>(bytes_));
  close(file_);
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
    fail("moments", "moments could not be written to a file in {}: {}", folder_, reason(error_));
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
  // Only advice: without it pages come one fault at a time.
  madvise(memory_ + region.offset, static_cast<size_t>(region.bytes), MADV_WILLNEED);
}

// Write-back starts, and the pages leave this process; the kernel still has them.
void MomentFile::leave(const Region& region) noexcept {
  if (sync_file_range(file_, region.offset, region.bytes, SYNC_FILE_RANGE_WRITE) != 0 &&
      error_ == 0)
    error_ = errno;
  madvise(memory_ + region.offset, static_cast<size_t>(region.bytes), MADV_DONTNEED);
}

// Waits for the write-back, after which the kernel may drop the pages too. This bounds what waits
// to be written, where the disk is slower than the updates.
void MomentFile::forget(const Region& region) noexcept {
  constexpr unsigned kWritten =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (sync_file_range(file_, region.offset, region.bytes, kWritten) != 0 && error_ == 0)
    error_ = errno;
  posix_fadvise(file_, region.offset, region.bytes, POSIX_FADV_DONTNEED);
}

}  // namespace tessera

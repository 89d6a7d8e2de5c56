#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tessera {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    fail_user("data",
              "cannot open {}: {}; a data set is named by the path of its .bin and .idx "
              "without the ending",
              path, std::strerror(errno));
  }
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  const bool regular = known && S_ISREG(status.st_mode);
  size_ = regular ? static_cast<int64_t>(status.st_size) : 0;
  void* mapped = MAP_FAILED;
  int error = 0;
  if (size_ > 0) {
    mapped = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, fd, 0);
    error = errno;
  }
  ::close(fd);
  if (!regular) fail_user("data", "{} is not a regular file", path);
  if (size_ == 0) fail_user("data", "{} is empty: 0 bytes", path);
  if (mapped == MAP_FAILED) {
    fail("data", "cannot map {} ({} bytes): {}", path, size_, std::strerror(error));
  }
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace tessera

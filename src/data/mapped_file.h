#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera {

// A regular file mapped read-only. Its size is taken once, when it is opened: readers check every
// range against size() before they touch it, because a read past the end raises SIGBUS.
class MappedFile {
 public:
  // UserError that names the path if it is missing, unreadable, no regular file, or empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tessera

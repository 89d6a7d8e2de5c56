#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files/files.h"

namespace tessera {

// A regular file of data, read by position and not mapped: a mapping ends the process by SIGBUS
// when the file shrinks or its disk fails, and not every file system has one. Bytes come from the
// kernel's cache, which all ranks of a node share, as they would through a mapping. Any number of
// threads may read at once.
class DataFile {
 public:
  // UserError that names the path if it is missing, unreadable, no regular file, or empty.
  explicit DataFile(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened

  // Fills `out` with the bytes from `begin` on. The caller has checked the range against size().
  // Error if the file has become shorter since it was opened, or cannot be read.
  void read(int64_t begin, std::span<std::byte> out) const;
  std::vector<std::byte> read(int64_t begin, int64_t bytes) const;

  // The value that lies at byte `begin`.
  template <typename T>
  T load(int64_t begin) const {
    T value;
    read(begin, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

 private:
  std::string path_;
  File file_;
  int64_t size_ = 0;
};

// An array of numbers in a file, for walks from its start to its end: read in blocks. For one
// thread.
template <typename T>
class DataColumn {
 public:
  DataColumn(const DataFile& file, int64_t begin, int64_t count)
      : file_(file), begin_(begin), count_(count) {}

  T operator[](int64_t i) {
    if (i < first_ || i >= first_ + static_cast<int64_t>(block_.size())) fetch(i);
    return block_[static_cast<size_t>(i - first_)];
  }

 private:
  void fetch(int64_t i) {
    constexpr int64_t kBlock = 1 << 14;
    first_ = i;
    block_.resize(static_cast<size_t>(std::min(kBlock, count_ - i)));
    file_.read(begin_ + i * static_cast<int64_t>(sizeof(T)),
               std::as_writable_bytes(std::span(block_)));
  }

  const DataFile& file_;
  int64_t begin_, count_;
  int64_t first_ = 0;
  std::vector<T> block_;
};

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

// An open file, closed with the object. It remembers its path, so that every error names it.
class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  // For reading. Only regular files (symbolic links are followed). UserError if it is not there or
  // is something else; Error if it cannot be opened for another reason (permission, descriptors).
  static File open(const std::filesystem::path& path);
  // Made anew and empty, for writing; an existing file is replaced.
  static File create(const std::filesystem::path& path);

  bool is_open() const { return fd_ >= 0; }
  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;

  // Exactly `bytes` bytes from or to `offset`. Reading past the end is a DamagedError (the file is
  // shorter than it says). A failed read or write is an Error: it says nothing about the file.
  void read_at(void* data, int64_t bytes, int64_t offset) const;
  void write_at(const void* data, int64_t bytes, int64_t offset);

  // Returns when the bytes are on the disk.
  void sync();
  // Closes and reports what the file system held back (a full disk on a network file system).
  void close();

 private:
  File(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::filesystem::path path_;
};

// Makes names that were created, renamed or removed in a folder survive a crash.
void sync_folder(const std::filesystem::path& folder);

// Renames within one file system, replacing what `to` names (a file, or an empty folder).
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// The file holds `text` whole, or is as it was before: temporary name beside it, fsync, rename,
// fsync of the folder.
void write_file_atomic(const std::filesystem::path& path, std::string_view text);

// The text of a small file; UserError if it has more than `limit` bytes.
std::string read_small_file(const std::filesystem::path& path, int64_t limit);

// True if `name` is one path component that stays in its folder: not empty, not "." or "..",
// without
// '/', '\' or NUL.
bool is_plain_name(std::string_view name);

// `path` without "." parts and trailing slashes, so that filename() and parent_path() mean
// something.
std::filesystem::path clean_path(const std::filesystem::path& path);

// The folder that holds `path`: "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace tessera

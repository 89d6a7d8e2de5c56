#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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
  // For writing, with what it holds; made if it is not there.
  static File open_to_write(const std::filesystem::path& path);

  bool is_open() const { return fd_ >= 0; }
  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;

  // Exactly `bytes` bytes from or to `offset`. Reading past the end is a DamagedError (the file is
  // shorter than it says). A failed read or write is an Error: it says nothing about the file.
  void read_at(void* data, int64_t bytes, int64_t offset) const;
  void write_at(const void* data, int64_t bytes, int64_t offset);

  // Returns when the bytes are on the disk. On a file system without fsync it returns at once:
  // try_folder() tells the user so.
  void sync();
  // Closes and reports what the file system held back (a full disk on a network file system).
  void close();

 private:
  File(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::filesystem::path path_;
};

// Makes names that were created, renamed or removed in a folder survive a crash. Nothing where the
// file system cannot sync folders, many of which keep names in another way.
void sync_folder(const std::filesystem::path& folder);

// Renames within one file system, replacing what `to` names (a file, or an empty folder).
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// Writes a file so that it holds all of `text` or stays as it was, even after a crash: under a
// temporary name beside it, fsync, rename, fsync of the folder. A failure leaves no temporary file;
// only a process that is killed does.
void write_file_atomic(const std::filesystem::path& path, std::string_view text);

// The name beside PATH under which write_file_atomic() writes: `.NAME.tmp`. A number above 1 gives
// the next name to try, `.NAME.2.tmp`, where the one before is taken by something that cannot be
// replaced.
std::filesystem::path temporary_name(const std::filesystem::path& path, int number = 1);
// Removes what killed processes left of write_file_atomic(path). What cannot be removed comes back
// as messages.
std::vector<std::string> remove_temporaries(const std::filesystem::path& path);

// Removes a file, or a folder with all that is in it. A failure does not stop the removal of the
// rest. Returns the first failure as a message; empty if nothing is left. Links are removed, not
// followed.
std::string remove_tree(const std::filesystem::path& path);

// What a path names (links are followed), `not_found` if nothing. If that cannot be found out,
// type_of() throws Error and type_of_input(), for paths that the user gave, UserError; both name
// path and reason.
std::filesystem::file_type type_of(const std::filesystem::path& path);
std::filesystem::file_type type_of_input(const std::filesystem::path& path);
// Whether the path names a regular file, or a folder (links are followed). Errors as type_of().
bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// All entries, sorted. Error with path and reason.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

// The folder and those above it, where they are missing. Error with path and reason.
void make_folders(const std::filesystem::path& folder);

// Copies only the bytes of a file: not its mode, nor attributes that only some file systems have.
// An existing `to` loses its contents.
void copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to);

// Returns when all bytes of a closed file are on the disk (File::sync()).
void sync_file(const std::filesystem::path& path);

// The text of a small file; UserError if it has more than `limit` bytes.
std::string read_small_file(const std::filesystem::path& path, int64_t limit);

// True if `name` is one path component that stays in its folder: not empty, not "." or "..", and
// without '/', '\' or NUL.
bool is_plain_name(std::string_view name);

// `path` in lexically normal form and without a trailing slash, so that filename() and
// parent_path() name the last component and the folder that holds it.
std::filesystem::path clean_path(const std::filesystem::path& path);

// The folder that holds `path`: "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace tessera

#include "base/files/try_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/files/files.h"
#include "base/system_error.h"

namespace tessera {
namespace {

constexpr const char* kTrial = ".write-test-";

// 0 or the errno of an fsync.
int sync_error(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

}  // namespace

std::vector<std::string> try_folder(const std::filesystem::path& folder) {
  std::string name = (folder / kTrial).string() + "XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) fail("files", "cannot create a file: {}", reason_of(errno));
  const bool written = ::write(fd, "trial\n", 6) == 6;
  const int write_error = errno;
  ::close(fd);
  const int file_error = written ? sync_error(name, O_WRONLY) : 0;
  ::unlink(name.c_str());
  if (!written) fail("files", "cannot write a file: {}", reason_of(write_error));
  const int folder_error = sync_error(folder, O_RDONLY | O_DIRECTORY);
  for (const int error : {file_error, folder_error})
    if (error != 0 && error != EACCES && !is_sync_unsupported(error))
      fail("files", "cannot sync: {}", reason_of(error));
  std::vector<std::string> lacks;
  if (file_error != 0)
    lacks.push_back(
        fmt::format("the file system of {} cannot sync files ({}): after a power failure, what was "
                    "written last may be damaged",
                    folder.string(), reason_of(file_error)));
  if (folder_error != 0)
    lacks.push_back(
        fmt::format("the file system of {} cannot sync folders ({}): after a power failure, what "
                    "was written last may be missing",
                    folder.string(), reason_of(folder_error)));
  return lacks;
}

void remove_trials(const std::filesystem::path& folder) {
  for (const auto& path : list_folder(folder))
    if (path.filename().string().starts_with(kTrial)) ::unlink(path.c_str());
}

}  // namespace tessera

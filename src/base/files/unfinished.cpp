#include "base/files/unfinished.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <string_view>

#include "base/error.h"
#include "base/files/files.h"
#include "base/process/process_identity.h"
#include "base/system_error.h"

namespace tessera {
namespace {

constexpr const char* kSuffix = ".partial-";
constexpr const char* kMark = ".owner";  // a file in a folder

// The process of PREFIX + "4711" or "4711.2"; 0 for other names.
int process_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return 0;
  name.remove_prefix(prefix.size());
  int process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  std::string_view rest = name.substr(static_cast<size_t>(end - name.data()));
  if (error != std::errc() || process <= 0) return 0;
  if (!rest.empty() && (rest[0] != '.' || rest.size() == 1 ||
                        rest.find_first_not_of("0123456789", 1) != std::string_view::npos))
    return 0;
  return process;
}

// What lies beside TARGET under such a name; empty if that cannot be listed.
std::vector<std::filesystem::path> unfinished_of(const std::filesystem::path& target) {
  const std::string prefix = target.filename().string() + kSuffix;
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder_of(target), error), end; !error && at != end;
       at.increment(error))
    if (process_of(at->path().filename().string(), prefix) != 0) found.push_back(at->path());
  return found;
}

// Whether the folder's mark names a process that has certainly ended.
bool owner_has_ended(const std::filesystem::path& folder) {
  constexpr int64_t kMostMark = 4096;
  try {
    const auto owner = ProcessIdentity::parse(read_small_file(folder / kMark, kMostMark));
    return owner.life() == ProcessIdentity::Life::kEnded;
  } catch (const Error&) {  // not ours, or its mark cannot be read
    return false;
  }
}

// Removes a folder whose process was killed between making it and marking it: one that is empty, or
// has nothing but an empty mark.
void remove_if_only_begun(const std::filesystem::path& folder, int process) {
  if (::kill(process, 0) == 0 || errno != ESRCH) return;
  std::error_code error;
  std::filesystem::directory_iterator first(folder, error);
  if (error) return;
  const bool only_mark = first != std::filesystem::directory_iterator() &&
                         first->path().filename() == kMark && first->file_size(error) == 0 &&
                         !error && ++first == std::filesystem::directory_iterator();
  if (only_mark) ::unlink((folder / kMark).c_str());
  ::rmdir(folder.c_str());  // fails if anything is in it
}

}  // namespace

std::filesystem::path unfinished_name(const std::filesystem::path& target, int number) {
  const std::string name = fmt::format("{}{}{}", target.string(), kSuffix, ::getpid());
  return number == 1 ? name : fmt::format("{}.{}", name, number);
}

void mark_unfinished(const std::filesystem::path& folder) {
  File mark = File::create(folder / kMark);
  const std::string text = ProcessIdentity::own().to_text() + "\n";
  mark.write_at(text.data(), static_cast<int64_t>(text.size()), 0);
  mark.close();
}

std::vector<std::filesystem::path> unfinished_folders(const std::filesystem::path& target) {
  std::vector<std::filesystem::path> ended;
  for (const auto& path : unfinished_of(target)) {
    if (owner_has_ended(path))
      ended.push_back(path);
    else
      remove_if_only_begun(
          path, process_of(path.filename().string(), target.filename().string() + kSuffix));
  }
  return ended;
}

void lock_unfinished(int fd) {
  static_cast<void>(::flock(fd, LOCK_EX | LOCK_NB));
}

void remove_unfinished_files(const std::filesystem::path& target) {
  const std::string prefix = target.filename().string() + kSuffix;
  for (const auto& path : unfinished_of(target)) {
    const int process = process_of(path.filename().string(), prefix);
    if (::kill(process, 0) == 0 || errno != ESRCH) continue;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;  // such as a folder
    struct stat info {};
    if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && ::flock(fd, LOCK_EX | LOCK_NB) == 0)
      ::unlink(path.c_str());
    ::close(fd);
  }
}

}  // namespace tessera

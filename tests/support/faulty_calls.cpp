// A preloaded library that makes chosen system calls fail, or take long: file systems that are
// full, slow, or lack something, without one at hand. Tests start the program with
//
//   LD_PRELOAD=.../libfaulty_calls.so FAULTY_CALLS='RULE; RULE; ...' tessera ...
//   RULE = CALL[,CALL...] PATTERN EFFECT [OPTION...]
//
//   CALL     open read write fsync fdatasync sync_file_range flock fcntl_lock mmap_shared rename
//            link unlink rmdir mkdir chmod truncate fallocate copy_range opendir stat fopen fflush
//            statfs; each stands for its relatives (open: open64, openat, creat; write: pwrite,
//            ...)
//   PATTERN  of the path as fnmatch() takes it, where * also stands for slashes. Of a call on a
//            descriptor, the path that the descriptor was opened by; of rename and link, either.
//   EFFECT   an errno by name (ENOSPC) or number: the call is not made and fails with it
//            delay=MS: the call is made after so many milliseconds
//            kill: the process ends by SIGKILL instead of the call
//            stop: the process stops (SIGSTOP) before the call, and makes it when it is continued
//            truncate: what the path names is cut to 0 bytes before the call
//   OPTION   nth=N: the Nth matching call of this process alone; from=N: that and all later ones;
//            rank=R: in the process that mpirun gave this rank alone
//
// The first rule that matches a call decides. Whatever is not understood ends the process with exit
// code 97, so that no test passes because of a slip. Calls that the C library makes inside itself
// (the write() of an fflush()) are not seen.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Rule {
  std::vector<std::string> calls;
  std::string pattern;
  int error = 0;
  long delay_ms = 0;
  bool kill = false, stop = false, truncate = false;
  long first = 1, last = LONG_MAX;
  std::atomic<long> seen{0};
};

const char* const kCalls[] = {"open",     "read",       "write",       "fsync",  "fdatasync",
                              "flock",    "fcntl_lock", "mmap_shared", "rename", "sync_file_range",
                              "link",     "unlink",     "rmdir",       "mkdir",  "chmod",
                              "truncate", "fallocate",  "copy_range",  "stat",   "opendir",
                              "fopen",    "fflush",     "statfs"};

[[noreturn]] void refuse(const std::string& what) {
  const std::string text = "faulty_calls: " + what + "\n";
  static_cast<void>(::write(STDERR_FILENO, text.data(), text.size()) < 0);
  _exit(97);
}

long number(const std::string& text) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 0) refuse("'" + text + "' is no number");
  return value;
}

int errno_of(const std::string& name) {
  for (int error = 1; error < 200; ++error) {
    const char* known = strerrorname_np(error);
    if (known && name == known) return error;
  }
  if (name == "ENOTSUP") return ENOTSUP;
  if (name == "EWOULDBLOCK") return EWOULDBLOCK;
  return static_cast<int>(number(name));
}

std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) all.push_back(part);
  return all;
}

// False: not for this rank.
bool parse(const std::string& text, Rule& rule) {
  std::istringstream in(text);
  std::string calls, effect;
  if (!(in >> calls >> rule.pattern >> effect)) refuse("'" + text + "' is no rule");
  rule.calls = parts(calls, ',');
  for (const std::string& call : rule.calls) {
    bool known = false;
    for (const char* name : kCalls) known |= call == name;
    if (!known) refuse("there is no call '" + call + "'");
  }
  if (effect.starts_with("delay="))
    rule.delay_ms = number(effect.substr(6));
  else if (effect == "kill")
    rule.kill = true;
  else if (effect == "stop")
    rule.stop = true;
  else if (effect == "truncate")
    rule.truncate = true;
  else
    rule.error = errno_of(effect);
  for (std::string option; in >> option;) {
    if (option.starts_with("nth="))
      rule.first = rule.last = number(option.substr(4));
    else if (option.starts_with("from="))
      rule.first = number(option.substr(5));
    else if (option.starts_with("rank=")) {
      const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
      if (!rank || option.substr(5) != rank) return false;
    } else
      refuse("there is no option '" + option + "'");
  }
  return true;
}

std::deque<Rule>& rules() {
  static std::deque<Rule>& all = *[] {
    auto* made = new std::deque<Rule>;  // used until the very end of the process
    const char* text = std::getenv("FAULTY_CALLS");
    for (const std::string& rule : parts(text ? text : "", ';')) {
      if (rule.find_first_not_of(" \n\t") == std::string::npos) continue;
      if (!parse(rule, made->emplace_back())) made->pop_back();
    }
    return made;
  }();
  return all;
}

template <typename F>
F real(F, const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

std::string path_of(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path);
  return length < 0 ? "" : std::string(path, static_cast<size_t>(length));
}

std::string path_at(int folder, const char* path) {
  if (!path) return "";
  if (path[0] == '/' || folder == AT_FDCWD) return path;
  return path_of(folder) + "/" + path;
}

// True: the call is not made, and errno says why. `other`: the second path of a rename or link.
bool fails(const char* call, const std::string& path, const std::string& other = "") {
  static thread_local bool inside = false;  // what this library itself calls
  if (inside) return false;
  inside = true;
  const int before = errno;
  int error = 0;
  for (Rule& rule : rules()) {
    bool matches = false;
    for (const std::string& name : rule.calls) matches |= name == call;
    if (!matches || (fnmatch(rule.pattern.c_str(), path.c_str(), 0) != 0 &&
                     (other.empty() || fnmatch(rule.pattern.c_str(), other.c_str(), 0) != 0)))
      continue;
    const long count = ++rule.seen;
    if (count < rule.first || count > rule.last) continue;
    if (rule.kill) ::kill(::getpid(), SIGKILL);
    if (rule.stop) ::kill(::getpid(), SIGSTOP);
    if (rule.truncate) {
      static const auto cut = real(&::truncate, "truncate");
      cut(path.c_str(), 0);
    }
    timespec left{rule.delay_ms / 1000, rule.delay_ms % 1000 * 1000000};
    while (rule.delay_ms > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    error = rule.error;
    break;
  }
  inside = false;
  errno = error != 0 ? error : before;
  return error != 0;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

// Each of these is the C library's function of the same name, behind fails().
#define CALL(result, name, parameters, arguments, call, path, failed)                         \
  result name parameters {                                                                    \
    static const auto next = reinterpret_cast<result(*) parameters>(dlsym(RTLD_NEXT, #name)); \
    if (fails(call, path)) return failed;                                                     \
    return next arguments;                                                                    \
  }

#define OPEN(name)                                                                 \
  int name(const char* path, int flags, ...) {                                     \
    va_list rest;                                                                  \
    va_start(rest, flags);                                                         \
    const mode_t mode = mode_of(flags, rest);                                      \
    va_end(rest);                                                                  \
    static const auto next =                                                       \
        reinterpret_cast<int (*)(const char*, int, ...)>(dlsym(RTLD_NEXT, #name)); \
    return fails("open", path) ? -1 : next(path, flags, mode);                     \
  }

#define OPENAT(name)                                                                    \
  int name(int folder, const char* path, int flags, ...) {                              \
    va_list rest;                                                                       \
    va_start(rest, flags);                                                              \
    const mode_t mode = mode_of(flags, rest);                                           \
    va_end(rest);                                                                       \
    static const auto next =                                                            \
        reinterpret_cast<int (*)(int, const char*, int, ...)>(dlsym(RTLD_NEXT, #name)); \
    return fails("open", path_at(folder, path)) ? -1 : next(folder, path, flags, mode); \
  }

#define MMAP(name)                                                                                 \
  void* name(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {    \
    static const auto next =                                                                       \
        reinterpret_cast<void* (*)(void*, size_t, int, int, int, off_t)>(dlsym(RTLD_NEXT, #name)); \
    if (fd >= 0 && (flags & MAP_TYPE) != MAP_PRIVATE && fails("mmap_shared", path_of(fd)))         \
      return MAP_FAILED;                                                                           \
    return next(at, size, protection, flags, fd, offset);                                          \
  }

#define FCNTL(name)                                                                             \
  int name(int fd, int command, ...) {                                                          \
    va_list rest;                                                                               \
    va_start(rest, command);                                                                    \
    void* argument = va_arg(rest, void*);                                                       \
    va_end(rest);                                                                               \
    static const auto next = reinterpret_cast<int (*)(int, int, ...)>(dlsym(RTLD_NEXT, #name)); \
    const bool locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||   \
                       command == F_OFD_SETLKW;                                                 \
    if (locks && fails("fcntl_lock", path_of(fd))) return -1;                                   \
    return next(fd, command, argument);                                                         \
  }

extern "C" {

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
CALL(int, creat, (const char* path, mode_t mode), (path, mode), "open", path, -1)
CALL(std::FILE*, fopen, (const char* path, const char* mode), (path, mode), "fopen", path, nullptr)
CALL(std::FILE*, fopen64, (const char* path, const char* mode), (path, mode), "fopen", path,
     nullptr)
CALL(int, fflush, (std::FILE * file), (file), "fflush", file ? path_of(fileno(file)) : "", EOF)

CALL(ssize_t, read, (int fd, void* data, size_t size), (fd, data, size), "read", path_of(fd), -1)
CALL(ssize_t, pread, (int fd, void* data, size_t size, off_t at), (fd, data, size, at), "read",
     path_of(fd), -1)
CALL(ssize_t, pread64, (int fd, void* data, size_t size, off64_t at), (fd, data, size, at), "read",
     path_of(fd), -1)
CALL(ssize_t, write, (int fd, const void* data, size_t size), (fd, data, size), "write",
     path_of(fd), -1)
CALL(ssize_t, pwrite, (int fd, const void* data, size_t size, off_t at), (fd, data, size, at),
     "write", path_of(fd), -1)
CALL(ssize_t, pwrite64, (int fd, const void* data, size_t size, off64_t at), (fd, data, size, at),
     "write", path_of(fd), -1)
CALL(ssize_t, writev, (int fd, const iovec* data, int count), (fd, data, count), "write",
     path_of(fd), -1)

CALL(int, fsync, (int fd), (fd), "fsync", path_of(fd), -1)
CALL(int, fdatasync, (int fd), (fd), "fdatasync", path_of(fd), -1)
CALL(int, sync_file_range, (int fd, off64_t at, off64_t size, unsigned flags),
     (fd, at, size, flags), "sync_file_range", path_of(fd), -1)
CALL(int, flock, (int fd, int operation) noexcept, (fd, operation), "flock", path_of(fd), -1)
FCNTL(fcntl)
FCNTL(fcntl64)
MMAP(mmap)
MMAP(mmap64)

CALL(int, unlink, (const char* path) noexcept, (path), "unlink", path, -1)
CALL(int, rmdir, (const char* path) noexcept, (path), "rmdir", path, -1)
CALL(int, mkdir, (const char* path, mode_t mode) noexcept, (path, mode), "mkdir", path, -1)
CALL(int, mkdirat, (int folder, const char* path, mode_t mode) noexcept, (folder, path, mode),
     "mkdir", path_at(folder, path), -1)
CALL(int, chmod, (const char* path, mode_t mode) noexcept, (path, mode), "chmod", path, -1)
CALL(int, fchmod, (int fd, mode_t mode) noexcept, (fd, mode), "chmod", path_of(fd), -1)
CALL(int, fchmodat, (int folder, const char* path, mode_t mode, int flags) noexcept,
     (folder, path, mode, flags), "chmod", path_at(folder, path), -1)
CALL(int, truncate, (const char* path, off_t size) noexcept, (path, size), "truncate", path, -1)
CALL(int, ftruncate, (int fd, off_t size) noexcept, (fd, size), "truncate", path_of(fd), -1)
CALL(int, ftruncate64, (int fd, off64_t size) noexcept, (fd, size), "truncate", path_of(fd), -1)
CALL(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), "fallocate",
     path_of(fd), -1)
CALL(int, posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size), "fallocate", path_of(fd),
     errno)
CALL(int, posix_fallocate64, (int fd, off64_t at, off64_t size), (fd, at, size), "fallocate",
     path_of(fd), errno)
CALL(ssize_t, copy_file_range,
     (int from, off64_t* from_at, int to, off64_t* to_at, size_t size, unsigned flags),
     (from, from_at, to, to_at, size, flags), "copy_range", path_of(to), -1)
CALL(ssize_t, sendfile, (int to, int from, off_t* at, size_t size) noexcept, (to, from, at, size),
     "copy_range", path_of(to), -1)
CALL(ssize_t, sendfile64, (int to, int from, off64_t* at, size_t size) noexcept,
     (to, from, at, size), "copy_range", path_of(to), -1)

CALL(DIR*, opendir, (const char* path), (path), "opendir", path, nullptr)
CALL(DIR*, fdopendir, (int fd), (fd), "opendir", path_of(fd), nullptr)
CALL(int, stat, (const char* path, struct stat* info) noexcept, (path, info), "stat", path, -1)
CALL(int, lstat, (const char* path, struct stat* info) noexcept, (path, info), "stat", path, -1)
CALL(int, stat64, (const char* path, struct stat64* info) noexcept, (path, info), "stat", path, -1)
CALL(int, fstat, (int fd, struct stat* info) noexcept, (fd, info), "stat", path_of(fd), -1)
// The same under the names that programs built against a C library before 2.33 call: LibTorch
// brings such an std::filesystem, which our program then uses too.
int __xstat(int, const char* path, struct stat* info) noexcept {
  return stat(path, info);
}
int __lxstat(int, const char* path, struct stat* info) noexcept {
  return lstat(path, info);
}
int __xstat64(int, const char* path, struct stat64* info) noexcept {
  return stat64(path, info);
}
CALL(int, fstatfs, (int fd, struct statfs* info) noexcept, (fd, info), "statfs", path_of(fd), -1)

int unlinkat(int folder, const char* path, int flags) noexcept {
  static const auto next = real(&::unlinkat, "unlinkat");
  const char* call = (flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink";
  return fails(call, path_at(folder, path)) ? -1 : next(folder, path, flags);
}

int remove(const char* path) noexcept {
  struct stat info {};
  const bool folder = ::lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
  return folder ? ::rmdir(path) : ::unlink(path);
}

int rename(const char* from, const char* to) noexcept {
  static const auto next = real(&::rename, "rename");
  return fails("rename", from, to) ? -1 : next(from, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  static const auto next = real(&::renameat, "renameat");
  if (fails("rename", path_at(from_folder, from), path_at(to_folder, to))) return -1;
  return next(from_folder, from, to_folder, to);
}

int link(const char* from, const char* to) noexcept {
  static const auto next = real(&::link, "link");
  return fails("link", from, to) ? -1 : next(from, to);
}

}  // extern "C"

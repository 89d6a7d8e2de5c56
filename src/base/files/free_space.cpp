#include "base/files/free_space.h"

#include <sys/statvfs.h>

#include <limits>

namespace tessera {

std::optional<int64_t> free_bytes(const std::filesystem::path& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0 || info.f_blocks == 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<int64_t>(info.f_bavail),
                             static_cast<int64_t>(info.f_frsize), &bytes))
    return std::numeric_limits<int64_t>::max();
  return bytes;
}

}  // namespace tessera

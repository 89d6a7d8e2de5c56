#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/files/free_space.h"
#include "base/process/available_memory.h"
#include "doctor/probes/probes.h"

namespace tessera::doctor {
namespace {

constexpr const char* kSharedFolder = "/dev/shm";

int64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return kUnlimited;
  constexpr auto kMost = static_cast<rlim_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(limit.rlim_cur, kMost));
}

// The smallest memory limit of this process's control group and those above it, of version 2 of
// control groups or of version 1.
int64_t group_limit() {
  std::ifstream in("/proc/self/cgroup");
  int64_t smallest = kUnlimited;
  for (std::string line; std::getline(in, line);) {
    const bool second = line.starts_with("0::");
    const size_t first = line.find(":memory:");
    if (!second && first == std::string::npos) continue;
    const std::string top = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* const file = second ? "/memory.max" : "/memory.limit_in_bytes";
    for (std::string group = top + (second ? line.substr(3) : line.substr(first + 8));
         group.size() >= top.size(); group.resize(group.rfind('/'))) {
      std::ifstream limit(group + file);
      int64_t bytes = 0;
      constexpr int64_t kNone = int64_t{1} << 60;  // version 1 writes "none" as a huge number
      if (limit >> bytes && bytes < kNone)
        smallest = smallest == kUnlimited ? bytes : std::min(smallest, bytes);
    }
  }
  return smallest;
}

int64_t total_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string key; in >> key; in.ignore(256, '\n')) {
    int64_t kib = 0;
    if (key == "MemTotal:" && in >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace

Limits probe_limits() {
  return {limit_of(RLIMIT_AS), limit_of(RLIMIT_MEMLOCK), limit_of(RLIMIT_NOFILE),
          limit_of(RLIMIT_NPROC)};
}

Memory probe_memory() {
  Memory memory;
  memory.total = total_memory();
  memory.available = available_memory();
  memory.group_limit = group_limit();
  struct statvfs shared {};
  if (statvfs(kSharedFolder, &shared) == 0)
    memory.shared_total = static_cast<int64_t>(shared.f_blocks * shared.f_frsize);
  memory.shared_free = free_bytes(kSharedFolder).value_or(0);
  return memory;
}

}  // namespace tessera::doctor

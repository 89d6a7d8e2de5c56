#include "base/process/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace tessera {
namespace {

// The number in a file that holds nothing else; nullopt for "max" and for a file that is not there.
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

int64_t available_of_system() {
  std::ifstream in("/proc/meminfo");
  for (std::string key; in >> key; in.ignore(256, '\n')) {
    int64_t kib = 0;
    if (key == "MemAvailable:" && in >> kib) return kib * 1024;
  }
  return 0;
}

// The folder of this process's group, of version 2 of control groups ("0::/path").
std::string control_group() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  return "";
}

}  // namespace

int64_t available_memory() {
  int64_t available = available_of_system();
  // A limit may be set on any of the groups above.
  std::string group = control_group();
  while (group.size() > std::string("/sys/fs/cgroup").size()) {
    const auto limit = number_in(group + "/memory.max");
    const auto used = number_in(group + "/memory.current");
    if (limit && used) available = std::min(available, std::max<int64_t>(0, *limit - *used));
    group.resize(group.rfind('/'));
  }
  return available;
}

}  // namespace tessera

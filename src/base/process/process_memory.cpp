#include "base/process/process_memory.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

#include "base/error.h"

namespace tessera {

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
}

int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib * 1024;
  }
  fail("memory", "/proc/self/status has no line RssAnon");
}

}  // namespace tessera

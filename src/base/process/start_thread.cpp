#include "base/process/start_thread.h"

#include <sys/resource.h>

#include "base/error.h"

namespace tessera {
namespace {

std::string limit_text(__rlimit_resource_t resource, rlim_t unit, const char* name) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur / unit) + name;
}

}  // namespace

void fail_thread(const std::string& purpose, const std::system_error& error) {
  fail(
      "threads",
      "cannot make a thread for {}: {}; the limits: {} processes and threads of this user (ulimit "
      "-u), address space {} (ulimit -v), stack of each thread {} (ulimit -s), and those of the "
      "container or batch system; raise the one that is reached, or use fewer run.threads or ranks",
      purpose, error.code().message(), limit_text(RLIMIT_NPROC, 1, ""),
      limit_text(RLIMIT_AS, 1024, " KiB"), limit_text(RLIMIT_STACK, 1024, " KiB"));
}

}  // namespace tessera

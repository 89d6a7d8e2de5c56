#include "training/start/prepare_run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/try_folder.h"
#include "base/process/host_name.h"
#include "base/process/process_identity.h"
#include "base/text/utc_text.h"
#include "parallel/comm/core/agreement.h"
#include "training/start/count_start.h"
#include "training/start/rank_agreement.h"

namespace tessera {
namespace {

std::vector<std::string> clean(const std::filesystem::path& dir, const UnfinishedNames& names) {
  std::vector<std::string> failures;
  try {
    failures = remove_left_overs(dir / "checkpoints", names);
    for (const char* name :
         {"config.yaml", "metrics.jsonl", "owed-validation.json", "checkpoints/validation.json",
          "checkpoints/rollback.json", "logs/outcome.json"})
      for (const std::string& why : remove_temporaries(dir / name)) failures.push_back(why);
    remove_trials(dir / "checkpoints");
  } catch (const Error& failure) {
    failures.emplace_back(failure.what());
  }
  return failures;
}

std::vector<std::string> each_once(const std::vector<std::string>& names) {
  std::set<std::string> seen;
  std::vector<std::string> once;
  for (const std::string& name : names)
    if (seen.insert(name).second) once.push_back(name);
  return once;
}

}  // namespace

PreparedFolder prepare_run_folder(const std::filesystem::path& dir, Communicator& world,
                                  const std::function<void()>& give_up) {
  PreparedFolder prepared;
  prepared.hosts = each_once(gather_messages(world, host_name()));
  const auto told = agree(world, [&] {
    if (world.rank() != 0) return std::string();
    for (const char* name : {"checkpoints", "logs"}) {
      std::error_code error;
      std::filesystem::create_directories(dir / name, error);
      if (error)
        fail_user("train", "cannot make the folder {}: {}; choose another run.dir",
                  (dir / name).string(), error.message());
    }
    const auto say = [](const std::string& line) {
      std::puts(line.c_str());  // there is no log yet: it lies in the folder
      std::fflush(stdout);
    };
    prepared.lock = std::make_shared<FolderLock>(dir, say, OwnerFile::Times(), give_up);
    const StartCount count = count_start(dir, prepared.lock->took_over(), world.size(),
                                         static_cast<int>(prepared.hosts.size()));
    prepared.names = {count.number, count.replaced_one};
    prepared.warnings = clean(dir, prepared.names);
    for (const std::string& warning : {count.warning, prepared.lock->warning()})
      if (!warning.empty()) prepared.warnings.push_back(warning);
    return fmt::format("{} {}", count.number, prepared.lock->token());
  });
  prepared.start = std::stoll(told[0]);
  prepared.token = told[0].substr(told[0].find(' ') + 1);
  check_shared_folder(dir, world);
  return prepared;
}

std::string start_line(const PreparedFolder& folder, int ranks) {
  constexpr size_t kMostNames = 16;
  const ProcessIdentity self = ProcessIdentity::own();
  std::string line = fmt::format("start {}: {}, host {}, process {}", folder.start,
                                 utc_text(std::time(nullptr)), self.host, self.pid);
  if (!self.job.empty()) line += fmt::format(", job {}, restart {}", self.job, self.restarts);
  const size_t nodes = folder.hosts.size();
  line += fmt::format(", {} rank{} on {} node{}", ranks, ranks == 1 ? "" : "s", nodes,
                      nodes == 1 ? "" : "s");
  if (nodes > 1) {
    const auto end = folder.hosts.begin() + static_cast<int64_t>(std::min(nodes, kMostNames));
    line += fmt::format(" ({}{})", fmt::join(folder.hosts.begin(), end, ", "),
                        nodes > kMostNames ? ", ..." : "");
  }
  return line;
}

}  // namespace tessera

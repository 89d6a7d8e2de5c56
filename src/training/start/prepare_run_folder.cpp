#include "training/start/prepare_run_folder.h"

#include <cstdio>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/try_folder.h"
#include "checkpoint/store/run_folder.h"
#include "parallel/comm/core/agreement.h"
#include "training/start/rank_agreement.h"

namespace tessera {
namespace {

std::vector<std::string> clean(const std::filesystem::path& dir) {
  std::vector<std::string> failures;
  try {
    failures = remove_left_overs(dir / "checkpoints");
    for (const char* name : {"config.yaml", "metrics.jsonl", "owed-validation.json",
                             "checkpoints/validation.json", "checkpoints/rollback.json"})
      for (const std::string& why : remove_temporaries(dir / name)) failures.push_back(why);
    remove_trials(dir / "checkpoints");
  } catch (const Error& failure) {
    failures.emplace_back(failure.what());
  }
  return failures;
}

}  // namespace

PreparedFolder prepare_run_folder(const std::filesystem::path& dir, Communicator& world) {
  PreparedFolder prepared;
  agree(world, [&] {
    if (world.rank() != 0) return std::string();
    for (const char* name : {"checkpoints", "logs"}) {
      std::error_code error;
      std::filesystem::create_directories(dir / name, error);
      if (error)
        fail_user("train", "cannot make the folder {}: {}; choose another run.dir",
                  (dir / name).string(), error.message());
    }
    prepared.lock = std::make_unique<FolderLock>(dir, [](const std::string& line) {
      std::puts(line.c_str());  // there is no log yet: it lies in the folder
      std::fflush(stdout);
    });
    prepared.warnings = clean(dir);
    if (!prepared.lock->warning().empty()) prepared.warnings.push_back(prepared.lock->warning());
    return std::string();
  });
  check_shared_folder(dir, world);
  return prepared;
}

}  // namespace tessera

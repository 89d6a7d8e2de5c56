#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files/folder_lock.h"
#include "checkpoint/store/run_folder.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

struct PreparedFolder {
  std::shared_ptr<FolderLock> lock;   // of rank 0
  std::vector<std::string> warnings;  // rank 0's, one line each
  int64_t start = 0;                  // this start's number, on all ranks as what follows
  std::string token;                  // FolderLock::token()
  std::vector<std::string> hosts;     // of all ranks, each once, in the order of ranks
  UnfinishedNames names;              // of this start's unfinished checkpoints; of rank 0
};

// Rank 0 makes the run folder with its parts, keeps other runs out of it, counts the start, and
// removes what killed or failed runs have left there under names of this program. It does so before
// anything else is written, since on a full disk a half-written checkpoint may be what fills it.
// What cannot be removed is a warning. UserError where ranks do not see the same folder.
// `give_up` is called now and then while rank 0 waits for an earlier turn of the job to end; it may
// throw StopRequested. Collective: what rank 0 throws is thrown on all ranks.
PreparedFolder prepare_run_folder(const std::filesystem::path& dir, Communicator& world,
                                  const std::function<void()>& give_up);

// The line that a log begins a start with: "start 4: 2026-11-30 22:15:03 UTC, host n1, process
// 4711, job 12_3, restart 1, 8 ranks on 2 nodes (n1, n2)".
std::string start_line(const PreparedFolder& folder, int ranks);

}  // namespace tessera

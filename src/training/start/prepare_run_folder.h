#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/files/folder_lock.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

struct PreparedFolder {
  std::unique_ptr<FolderLock> lock;   // of rank 0
  std::vector<std::string> warnings;  // rank 0's, one line each
};

// Rank 0 makes the run folder with its parts, keeps other runs out of it, and removes what killed
// or failed runs have left there under names of this program. It does so before anything is
// written, since on a full disk a half-written checkpoint may be what fills it. What cannot be
// removed is a warning. UserError where ranks do not see the same folder. Collective: an error of
// rank 0 is thrown on all ranks.
PreparedFolder prepare_run_folder(const std::filesystem::path& dir, Communicator& world);

}  // namespace tessera

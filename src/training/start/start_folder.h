#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/store/manager.h"
#include "checkpoint/store/stored_checkpoint.h"
#include "config/config.h"
#include "parallel/comm/core/communicator.h"
#include "training/output/console.h"

namespace tessera {

// The checkpoint that a run goes on from, as all ranks know it.
struct StartFolder {
  std::shared_ptr<const StoredCheckpoint> checkpoint;  // null: none
  // It is the newest of run.dir: if its data are damaged, an older one may take its place.
  bool newest_of_run = false;
};

// Which checkpoint a run goes on from.
//
//   run.dir holds              | resume: auto          | resume: PATH
//   ---------------------------+-----------------------+---------------------------------------
//   nothing                    | step 0                | PATH
//   PATH as its newest step    | its newest            | PATH
//   steps of a run that began  |                       |
//     at PATH (or init_from)   | its newest            | its newest: this run was started again
//   others                     | its newest; refused   | refused
//                              | where init_from names |
//                              | another start         |
//
// Who began where is told by the identities of checkpoints (RunRecord), never by paths. With
// resume: none steps in run.dir are refused. All of it is decided by rank 0. UserError also for a
// missing PATH, DamagedError for a broken one; the data are checked when they are loaded.
// Collective.
StartFolder start_folder(const Config& config, CheckpointManager& checkpoints,
                         const std::filesystem::path& checkpoint_dir, Communicator& world,
                         Console& console);

}  // namespace tessera

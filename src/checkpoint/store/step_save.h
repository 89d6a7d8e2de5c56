#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/rank_bytes.h"
#include "checkpoint/store/run_folder.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// Where the steps of a run are saved, and what is asked and told on the way.
struct SavePlace {
  std::filesystem::path dir;  // RUN/checkpoints
  // A folder of the node's own disk that files are written to first; empty: none.
  std::filesystem::path staging_dir;
  std::function<void(const std::string&)> warn;  // takes one line
  std::function<void()> check_ours = [] {};      // throws if the folder is another start's now
  UnfinishedNames names;
  std::function<void(const char* point)> probe = [](const char*) {};  // for tests
};

// What one save writes of this rank's states, and what must be on the disk before it counts.
struct SaveWork {
  Manifest
      manifest;  // with step, samples, tokens, seed, states, tensors, model, config, data, mesh
  std::vector<OwnPart> parts;
  RankBytes& bytes;  // of the parts
  // Called on rank 0 when all files are written and before the manifest is: what must not be
  // missing where the step is there. What it throws ends the save.
  std::function<void()> before_commit = [] {};
};

// Saves one step; collective over `group`, whose rank 0 commits. step-N.partial/ is made anew (with
// a number behind it where a left-over cannot be removed), every rank writes and fsyncs
// rank-RRRRR.safetensors, all agree, rank 0 writes the manifest last, fsyncs the folder, renames it
// to step-N, fsyncs the parent and replaces `latest` by rename. If any rank fails, all ranks throw,
// the unfinished folder is removed as far as that can be done, and older checkpoints are untouched.
// Returns the committed folder. Error if the step is committed already: what is there may be of
// another run.
std::filesystem::path save_step(const SavePlace& place, SaveWork work, Communicator& group);

// The file of rank `rank` of the run with these checkpoints in `staging_dir`. A run that is killed
// leaves it there; the next start of the run removes it.
std::filesystem::path staging_file(const SavePlace& place, int rank);

// Whether a step folder is committed. Error if that cannot be found out, since the caller may move
// away what is not.
bool is_committed(const std::filesystem::path& step_dir);

}  // namespace tessera

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manager.h"
#include "config/config.h"
#include "training/console.h"
#include "training/progress.h"

namespace tessera {

// Where a run begins: at step 0 with random weights, at step 0 with the weights of `folder`, or
// after some steps with every state of `folder`.
struct RunStart {
  std::optional<std::filesystem::path> folder;
  bool weights_only = false;
  Progress progress;
};

// Follows checkpoint.resume and checkpoint.init_from and says on the console what it chose. An
// explicit path is where a run begins: once the run folder holds checkpoints of its own that are at
// least as far, the same command goes on from those. UserError for a missing or broken explicit
// path, one with newer checkpoints beside it (they would mix), a checkpoint whose mathematics or
// data differ from the configuration's, and a fresh start in a folder that holds checkpoints.
// Collective. `data`: the fingerprints of the training data.
RunStart choose_start(const Config& config, CheckpointManager& checkpoints,
                      const std::filesystem::path& checkpoint_dir,
                      const std::vector<std::string>& data, Console& console);

}  // namespace tessera

#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/manager.h"
#include "config/config.h"
#include "training/console.h"

namespace tessera {

// Where a run begins: at step 0 with random weights, at step 0 with the weights of `folder`, or
// after `step` updates with every state of `folder`.
struct RunStart {
  std::optional<std::filesystem::path> folder;
  bool weights_only = false;
  int64_t step = 0;
};

// Follows checkpoint.resume and checkpoint.init_from, says on the console what it chose, and
// refuses (UserError) a missing or broken explicit path, a checkpoint whose mathematics differ from
// the configuration, and a fresh start in a folder that holds checkpoints. Collective.
RunStart choose_start(const Config& config, CheckpointManager& checkpoints,
                      const std::filesystem::path& checkpoint_dir, Console& console);

}  // namespace tessera

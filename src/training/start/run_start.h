#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/huggingface/hf_source.h"
#include "checkpoint/store/manager.h"
#include "checkpoint/store/stored_checkpoint.h"
#include "config/config.h"
#include "parallel/comm/core/communicator.h"
#include "training/loop/progress.h"
#include "training/output/console.h"
#include "training/start/run_record.h"

namespace tessera {

// Where a run begins: at step 0 with random weights, at step 0 with the weights of `folder`, or
// after some steps with every state of `folder`.
struct RunStart {
  std::optional<std::filesystem::path> folder;
  std::shared_ptr<const StoredCheckpoint> checkpoint = nullptr;  // in `folder`; null: none
  bool newest_of_run = false;  // damaged data of it are no error: choose_start() finds an older one
  bool weights_only = false;
  // Open, if `folder` is a Hugging Face folder, until the weights are loaded.
  std::shared_ptr<HuggingFaceSource> hugging_face = nullptr;
  nlohmann::json model = nullptr;  // the config.json of what is in `folder`; null: there is none
  // The folder whose files a model needs besides its weights (checkpoint/huggingface/hf_files.h).
  std::optional<std::filesystem::path> hf_files = std::nullopt;
  Progress progress = {};
  int64_t schedule_steps = 0;  // that the learning rate's schedule spans
  RunRecord record = {};       // what the run's checkpoints say of its past
};

// Follows checkpoint.resume and checkpoint.init_from (start_folder.h) and says on the console what
// it chose and what has changed. UserError for a checkpoint whose mathematics or data differ from
// the configuration's (resume_rules.h), and if ranks see different checkpoints. Collective; may be
// called again after the checkpoint that it chose was set aside. `data`: the fingerprints of the
// training data.
RunStart choose_start(const Config& config, CheckpointManager& checkpoints,
                      const std::filesystem::path& checkpoint_dir,
                      const std::vector<std::string>& data, Communicator& world, Console& console);

}  // namespace tessera

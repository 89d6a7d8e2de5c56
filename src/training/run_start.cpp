#include "training/run_start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/reader.h"
#include "config/load.h"
#include "optim/optimizer.h"
#include "training/model_record.h"

namespace tessera {
namespace {

// Resuming must train what the saved run would have trained.
void check_same_run(const Manifest& manifest, const Config& config,
                    const std::vector<std::string>& data, const std::filesystem::path& folder,
                    Console& console) {
  if (!manifest.config.is_object())
    fail_user("train",
              "{} holds weights alone, so training cannot go on from it; to start at step 0 with "
              "them, set checkpoint.init_from",
              folder.string());
  const std::string name = folder.filename().string();
  if (name.starts_with("step-") && name != step_dir_name(manifest.step))
    fail_user("train",
              "{} is the checkpoint of step {}: a step folder keeps its name; rename it to {}",
              folder.string(), manifest.step, step_dir_name(manifest.step));
  const auto difference = compare_for_resume(manifest.config, config);
  if (!difference.mathematics.empty())
    fail_user("train",
              "cannot resume from {}: these keys decide the mathematics and must be as they were:\n"
              "  {}\nmake them agree, or start another run in another run.dir",
              folder.string(), fmt::join(difference.mathematics, "\n  "));
  for (const auto& state : checkpoint_states(config.optimizer))
    if (std::find(manifest.states.begin(), manifest.states.end(), state) == manifest.states.end())
      fail_user("train",
                "{} holds no {}, so training cannot go on from it; to start at step 0 with its "
                "weights, set checkpoint.init_from",
                folder.string(), state);
  if (manifest.data.is_array() && manifest.data != nlohmann::json(data))
    fail_user(
        "train",
        "cannot resume from {}: data.train does not hold the tokens that it was trained on, so "
        "samples would be others:\n  then: {}\n  now:  {}\nbring the same files back, or start "
        "another run in another run.dir",
        folder.string(), manifest.data.dump(), nlohmann::json(data).dump());
  for (const auto& line : difference.other) console.line("changed since the save: " + line);
}

// The folder that an explicit checkpoint.resume stands for.
std::filesystem::path explicit_start(const std::filesystem::path& path,
                                     CheckpointManager& checkpoints,
                                     const std::filesystem::path& checkpoint_dir,
                                     Console& console) {
  check_step_folder(path, "checkpoint.resume");
  const int64_t step = read_manifest(path).step;
  const auto own = checkpoints.committed_steps();
  std::error_code ignored;
  const bool inside = std::filesystem::equivalent(folder_of(path), checkpoint_dir, ignored);
  if (inside && !own.empty() && own.back() > step)
    fail_user("train",
              "checkpoint.resume is {}, but {} also holds step {}, and two histories in one folder "
              "would mix; move the newer ones away, choose another run.dir, or resume: auto",
              path.string(), checkpoint_dir.string(), own.back());
  if (!inside && !own.empty() && own.back() >= step) {
    if (const auto latest = checkpoints.find_latest()) {
      console.line(fmt::format("{} has gone on since {}", checkpoint_dir.string(), path.string()));
      return *latest;
    }
  }
  checkpoints.verify(path);
  return path;
}

}  // namespace

RunStart choose_start(const Config& config, CheckpointManager& checkpoints,
                      const std::filesystem::path& checkpoint_dir,
                      const std::vector<std::string>& data, Console& console) {
  const std::string& resume = config.checkpoint.resume;
  RunStart start;
  if (resume == "auto") {
    start.folder = checkpoints.find_latest();
    if (!start.folder && config.checkpoint.init_from.empty())
      console.line("no checkpoint in " + checkpoint_dir.string() + ": starting at step 0");
  } else if (resume == "none") {
    if (!checkpoints.committed_steps().empty())
      fail_user(
          "train",
          "checkpoint.resume is none, but {} holds checkpoints of an earlier run, and two runs "
          "in one folder would mix; choose another run.dir, or resume: auto",
          checkpoint_dir.string());
    console.line("checkpoint.resume is none: starting at step 0");
  } else {
    start.folder = explicit_start(clean_path(resume), checkpoints, checkpoint_dir, console);
  }
  if (start.folder) {
    const Manifest manifest = read_manifest(*start.folder);
    check_same_run(manifest, config, data, *start.folder, console);
    start.progress = progress_of(manifest);
    console.line(fmt::format("resuming from {} at step {}", start.folder->string(), manifest.step));
    if (config.training.stop_after && *config.training.stop_after <= manifest.step)
      console.line(fmt::format("training.stop_after {} is behind that step: training to the end",
                               *config.training.stop_after));
  } else if (!config.checkpoint.init_from.empty()) {
    start.folder = config.checkpoint.init_from;
    start.weights_only = true;
    check_step_folder(*start.folder, "checkpoint.init_from");
    if (!std::filesystem::exists(*start.folder / "manifest.json") &&
        std::filesystem::exists(*start.folder / "config.json"))
      fail_user("train",
                "checkpoint.init_from is {}, a Hugging Face folder; make a step folder of it with "
                "tessera checkpoint import",
                start.folder->string());
    check_same_model(read_manifest(*start.folder).model, *config.model, *start.folder);
    console.line("starting at step 0 with the weights of " + start.folder->string());
  }
  return start;
}

}  // namespace tessera

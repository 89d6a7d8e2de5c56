#include "training/start/run_start.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/late_file.h"
#include "base/xxh3.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/store/open_on_ranks.h"
#include "checkpoint/store/run_folder.h"
#include "config/rules/resume.h"
#include "config/save.h"
#include "parallel/comm/core/agreement.h"
#include "training/loop/rollback_record.h"
#include "training/start/initial_weights.h"
#include "training/start/model_record.h"
#include "training/start/rank_agreement.h"
#include "training/start/resume_rules.h"
#include "training/start/schedule_change.h"
#include "training/start/start_folder.h"

namespace tessera {
namespace {

// Every rank will read data from the folder by its name, so it must be there what it is for rank 0,
// which has read the manifest.
void check_seen_by_all(const StoredCheckpoint& checkpoint, Communicator& world) {
  std::string text = checkpoint.manifest_text();
  read_on_all_ranks(world, [&] {
    if (world.rank() == 0) return;
    wait_until_visible(checkpoint.dir() / "manifest.json");
    text = read_manifest_text(checkpoint.dir());
  });
  check_same_on_all_ranks({{"checkpoint", xxh3_hex(text.data(), text.size()), checkpoint.dir()}},
                          world);
}

// Says on the console what is unusual about the learning rates to come: a warning if they differ
// from the saved run's, a line if the run has more steps than its schedule.
void say_rates(const Manifest& manifest, const Config& requested, const Config& config,
               Console& console) {
  const Rates now = rates_of(config);
  const int64_t last = config.training.steps;
  if (const auto change = rate_change(saved_rates(manifest.config), now, manifest.step, last)) {
    console.warn(*change);
  } else if (requested.schedule.steps == 0 && last > now.schedule.steps &&
             now.schedule.type != ScheduleType::kConstant) {
    console.line(
        fmt::format("the schedule of the learning rate spans the {} steps that the run began with: "
                    "after them it stays at {:.3e} (schedule.steps: {} would span the new number)",
                    now.schedule.steps, now.at(last), last));
  }
}

void resume_from(const Config& requested, const std::vector<std::string>& data,
                 const Manifest& manifest, RunStart& start, Communicator& world, Console& console) {
  start.schedule_steps = requested.schedule.steps;
  if (start.schedule_steps == 0 && manifest.config.is_object())
    start.schedule_steps = saved_rates(manifest.config).schedule.steps;
  Config config = requested;
  config.schedule.steps = start.schedule_steps;
  const auto changes = check_same_run(manifest, config, data, *start.folder, console);

  start.progress = progress_of(manifest);
  const std::string order = order_of(config.run.seed, data, to_json(config));
  const nlohmann::json saved_data = manifest.data.is_array() ? manifest.data : nlohmann::json(data);
  if (!start.progress.skipped.empty() &&
      order != order_of(manifest.seed, saved_data, manifest.config)) {
    console.warn(
        "the order of samples is another one now, so none is left out for an earlier rollback");
    start.progress.skipped.clear();
  }
  take_rollback_record(folder_of(*start.folder), order, start.progress, world, console);

  if (auto record = run_record_of(manifest)) start.record = std::move(*record);
  for (const ConfigChange& change : changes)
    start.record.changes.push_back({manifest.step, change});
  const int64_t saved_steps = saved_rates(manifest.config).schedule.steps;
  if (saved_steps != start.schedule_steps)
    start.record.changes.push_back(
        {manifest.step, {"schedule.steps", saved_steps, start.schedule_steps}});
  console.line(fmt::format("resuming from {} at step {}", start.folder->string(), manifest.step));
  if (start.progress.step < config.training.steps) say_rates(manifest, requested, config, console);
  if (config.training.stop_after && *config.training.stop_after <= manifest.step)
    console.line(fmt::format("training.stop_after {} is behind that step: training to the end",
                             *config.training.stop_after));
}

void start_with_weights(const Config& config, RunStart& start, Communicator& world,
                        Console& console) {
  start.folder = config.checkpoint.init_from;
  start.weights_only = true;
  // A step folder is read by rank 0 for all; of a Hugging Face folder every rank reads the headers,
  // since it goes to their data itself.
  const bool hugging_face = is_hugging_face_folder(*start.folder);
  InitialWeights weights;
  read_on_all_ranks(world, [&] {
    if (hugging_face)
      weights = weights_of_hugging_face(*start.folder);
    else
      check_init_from(*start.folder);
  });
  if (hugging_face) {
    check_same_on_all_ranks({{"checkpoint", weights.id, *start.folder}}, world);
    agree(world, [&] {  // each rank its part of the data
      weights.hugging_face->check_tied_head(world.rank(), world.size());
      return std::string();
    });
  } else {
    start.checkpoint = open_on_all_ranks(world, *start.folder);
    check_seen_by_all(*start.checkpoint, world);
    weights = weights_of_step(start.checkpoint->manifest(), *start.folder);
  }
  check_same_model(weights.model, *config.model, *start.folder);
  start.model = weights.model;
  start.hugging_face = weights.hugging_face;
  start.hf_files = hugging_face ? start.folder : find_hf_files(*start.folder);
  start.record.starts.push_back({"checkpoint.init_from", weights.id, weights.step});
  console.line("starting at step 0 with the weights of " + start.folder->string());
  for (const std::string& note : weights.notes) console.line(note);
}

}  // namespace

RunStart choose_start(const Config& config, CheckpointManager& checkpoints,
                      const std::filesystem::path& checkpoint_dir,
                      const std::vector<std::string>& data, Communicator& world, Console& console) {
  RunStart start;
  const StartFolder found = start_folder(config, checkpoints, checkpoint_dir, world, console);
  if (found.checkpoint) start.folder = found.checkpoint->dir();
  set_rollback_record_aside(checkpoint_dir, start.folder, world, console);
  if (start.folder) {
    start.checkpoint = found.checkpoint;
    start.newest_of_run = found.newest_of_run;
    check_seen_by_all(*start.checkpoint, world);
    const Manifest& manifest = start.checkpoint->manifest();
    resume_from(config, data, manifest, start, world, console);
    start.model = manifest.model;
    start.hf_files = find_hf_files(*start.folder);
    const std::string& resume = config.checkpoint.resume;
    if (resume != "auto" && clean_path(resume) == *start.folder)
      start.record.starts.push_back({"checkpoint.resume", manifest.id, manifest.step});
    return start;
  }
  start.schedule_steps = rates_of(config).schedule.steps;
  if (!config.checkpoint.init_from.empty()) start_with_weights(config, start, world, console);
  return start;
}

}  // namespace tessera

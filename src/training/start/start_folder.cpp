#include "training/start/start_folder.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/store/open_on_ranks.h"
#include "checkpoint/store/run_folder.h"
#include "parallel/comm/core/agreement.h"
#include "training/start/initial_weights.h"
#include "training/start/run_record.h"

namespace tessera {
namespace {

using Path = std::filesystem::path;

// Rank 0's answer, on every rank.
std::string ask_rank_0(Communicator& world, const std::function<std::string()>& question) {
  return agree(world, [&] { return world.rank() == 0 ? question() : std::string(); })[0];
}

// The newest step of the folder whose manifest can be read; find_latest() sees to the others.
std::optional<Manifest> newest_readable(const Path& checkpoint_dir,
                                        const std::vector<int64_t>& steps) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return read_manifest(checkpoint_dir / step_dir_name(*step));
    } catch (const DamagedError&) {
    }
  }
  return std::nullopt;
}

// "a run that began with checkpoint.resume at the checkpoint of step 10, 0123456789abcdef".
std::string began_text(const Manifest& newest) {
  const auto record = run_record_of(newest);
  if (!record) return "a run that does not say where it began (of an older program)";
  if (record->starts.empty()) return "a run that began with random weights";
  const auto& start = record->starts.back();
  return fmt::format("a run that began with {} at the {}, {}", start.key,
                     start.step ? fmt::format("checkpoint of step {}", *start.step)
                                : "weights of a Hugging Face folder",
                     start.manifest);
}

// What an explicit checkpoint.resume means for a run folder that holds steps.
enum class Explicit { kPath, kNewest };

Explicit judge_explicit(const Path& path, const Path& checkpoint_dir,
                        const std::vector<int64_t>& own) {
  check_step_folder(path, "checkpoint.resume");
  const Manifest start = read_manifest(path);
  std::error_code ignored;
  const bool inside = std::filesystem::equivalent(folder_of(path), checkpoint_dir, ignored);
  if (own.empty() || (inside && own.back() <= start.step)) return Explicit::kPath;
  const auto newest = newest_readable(checkpoint_dir, own);
  if (newest) {
    if (newest->id == start.id) return Explicit::kPath;  // the same checkpoint, here and there
    const auto record = run_record_of(*newest);
    if (record && record->began_at("checkpoint.resume", start.id)) return Explicit::kNewest;
  }
  if (inside)
    fail_user("train",
              "checkpoint.resume is {}, but {} also holds step {}, which did not begin there, and "
              "two histories in one folder would mix; move the newer ones away, choose another "
              "run.dir, or resume: auto",
              path.string(), checkpoint_dir.string(), own.back());
  fail_user("train",
            "checkpoint.resume is {} (step {}, {}), but {} holds step {} of {}; two runs in one "
            "folder would mix. Choose another run.dir to go on from the path, or resume: auto to "
            "go on from this folder's newest step",
            path.string(), start.step, start.id, checkpoint_dir.string(), own.back(),
            newest ? began_text(*newest) : "another run");
}

// For a run folder that holds steps while the configuration names checkpoint.init_from: UserError
// if the steps are of a run that began elsewhere, a warning if that cannot be found out.
void check_began_at_weights(const Path& init_from, const Manifest& newest, const Path& folder,
                            Console& console) {
  const auto record = run_record_of(newest);
  std::string why_unknown;
  try {
    if (!record) {
      why_unknown = "its checkpoints do not say where it began";
    } else if (record->began_at("checkpoint.init_from", look_at_weights(init_from).id)) {
      return;
    }
  } catch (const Error&) {  // weights that were needed once may be gone
    why_unknown = fmt::format("{} cannot be read any more", init_from.string());
  }
  if (!why_unknown.empty()) {
    console.warn(
        fmt::format("going on from {}, without knowing whether that run began with the weights of "
                    "checkpoint.init_from: {}",
                    folder.string(), why_unknown));
    return;
  }
  fail_user("train",
            "checkpoint.init_from is {}, but {} is the newest step of {}; two runs in one folder "
            "would mix. Choose another run.dir to start with these weights, or leave init_from out "
            "to go on from that step",
            init_from.string(), folder.string(), began_text(newest));
}

}  // namespace

StartFolder start_folder(const Config& config, CheckpointManager& checkpoints,
                         const Path& checkpoint_dir, Communicator& world, Console& console) {
  const std::string& resume = config.checkpoint.resume;
  const Path init_from = config.checkpoint.init_from;
  if (resume == "none") {
    if (!checkpoints.committed_steps().empty())
      fail_user(
          "train",
          "checkpoint.resume is none, but {} holds checkpoints of an earlier run, and two runs "
          "in one folder would mix; choose another run.dir, or resume: auto",
          checkpoint_dir.string());
    console.line("checkpoint.resume is none: starting at step 0");
    return {};
  }
  if (resume == "auto") {
    auto newest = checkpoints.find_latest();
    if (newest && !init_from.empty())
      ask_rank_0(world, [&] {
        check_began_at_weights(init_from, newest->manifest(), newest->dir(), console);
        return std::string();
      });
    if (!newest && init_from.empty())
      console.line("no checkpoint in " + checkpoint_dir.string() + ": starting at step 0");
    return {std::move(newest), true};
  }

  const Path path = clean_path(resume);
  const auto own = checkpoints.committed_steps();
  const std::string answer = ask_rank_0(world, [&] {
    return judge_explicit(path, checkpoint_dir, own) == Explicit::kNewest ? "newest" : "path";
  });
  if (answer == "newest") {
    if (auto newest = checkpoints.find_latest()) {
      console.line(fmt::format("{} has gone on since {}", checkpoint_dir.string(), path.string()));
      return {std::move(newest), true};
    }
  }
  return {open_on_all_ranks(world, path), false};
}

}  // namespace tessera

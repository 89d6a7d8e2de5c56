#include "training/start/resume_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "checkpoint/store/run_folder.h"
#include "config/rules/resume.h"
#include "optim/optimizer.h"
#include "training/start/schedule_change.h"

namespace tessera {
namespace {

using nlohmann::json;

template <typename Range>
bool holds(const Range& range, const std::string& text) {
  return std::find(range.begin(), range.end(), text) != range.end();
}

void check_is_training(const Manifest& manifest, const std::filesystem::path& folder) {
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
}

// The saved configuration, with what its schedule.steps stood for.
json with_schedule_steps(const json& saved) {
  json result = saved;
  result["schedule"]["steps"] = saved_rates(saved).schedule.steps;
  return result;
}

}  // namespace

std::vector<ConfigChange> check_same_run(const Manifest& manifest, const Config& config,
                                         const std::vector<std::string>& data,
                                         const std::filesystem::path& folder, Console& console) {
  check_is_training(manifest, folder);
  const auto difference = compare_for_resume(with_schedule_steps(manifest.config), config);
  if (!difference.mathematics.empty())
    fail_user("train",
              "cannot resume from {}: these keys decide the mathematics and must be as they were:\n"
              "  {}\nmake them agree, or start another run in another run.dir{}",
              folder.string(), fmt::join(difference.mathematics, "\n  "),
              difference.on_request.empty()
                  ? ""
                  : fmt::format("; where the change is meant, set checkpoint.allow_change: [{}]",
                                fmt::join(difference.on_request, ", ")));
  std::vector<ConfigChange> changes = difference.allowed;
  for (const auto& state : checkpoint_states(config.optimizer))
    if (!holds(manifest.states, state))
      fail_user("train",
                "{} holds no {}, so training cannot go on from it; to start at step 0 with its "
                "weights, set checkpoint.init_from",
                folder.string(), state);
  if (manifest.data.is_array() && manifest.data != json(data)) {
    if (!holds(config.checkpoint.allow_change, kDataContents))
      fail_user("train",
                "cannot resume from {}: data.train does not hold the tokens that it was trained "
                "on, so samples would be others:\n  then: {}\n  now:  {}\nbring the same files "
                "back, or start another run in another run.dir; where the change is meant, set "
                "checkpoint.allow_change: [{}]",
                folder.string(), manifest.data.dump(), json(data).dump(), kDataContents);
    changes.push_back({kDataContents, manifest.data, data});
  }
  for (const auto& line : difference.other) console.line("changed since the save: " + line);
  for (const auto& change : changes)
    console.warn(fmt::format("{}: from step {} on, as checkpoint.allow_change allows",
                             change.text(), manifest.step + 1));
  return changes;
}

void check_states(const Manifest& manifest, const Manifest& needed) {
  std::map<std::string, const TensorInfo*> saved;
  for (const TensorInfo& tensor : manifest.tensors) saved[tensor.name] = &tensor;
  for (const TensorInfo& tensor : needed.tensors) {
    const auto there = saved.find(tensor.name);
    if (there == saved.end()) continue;  // check_tensors() names it
    for (const std::string& state : needed.states_of(tensor))
      if (!holds(manifest.states_of(*there->second), state))
        fail_user("train",
                  "the checkpoint has no {} of {}, which was frozen: it cannot be trained by a run "
                  "that goes on; keep it frozen, or start a new run with checkpoint.init_from",
                  state, tensor.name);
  }
}

}  // namespace tessera

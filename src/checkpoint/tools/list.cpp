#include "checkpoint/tools/list.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "base/error.h"
#include "base/files/files.h"
#include "base/text/error_text.h"
#include "base/text/quantities.h"
#include "base/text/utc_text.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/store/run_folder.h"
#include "checkpoint/store/validation_losses.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhole = "whole";
constexpr const char* kDamaged = "damaged";

// The bytes of the files in a folder, as far as they can be seen.
int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;  // since it was listed
    if (at->is_regular_file(gone)) bytes += static_cast<int64_t>(at->file_size(gone));
  }
  return bytes;
}

std::time_t changed_at(const fs::path& step_dir) {
  struct stat info {};
  if (::stat((step_dir / "manifest.json").c_str(), &info) != 0 &&
      ::stat(step_dir.c_str(), &info) != 0)
    return 0;
  return info.st_mtime;
}

// Why the files are not those that the manifest names, going by their sizes; empty: they are.
std::string why_damaged(const fs::path& step_dir, const Manifest& manifest) {
  std::vector<std::pair<std::string, int64_t>> files;
  for (const ManifestFile& file : manifest.files) files.emplace_back(file.name, file.size);
  if (manifest.index) files.emplace_back(manifest.index->name, manifest.index->size);
  for (const auto& [name, expected] : files) {
    std::error_code error;
    const auto size = fs::file_size(step_dir / name, error);
    if (error) return fmt::format("{}: {}", name, error.message());
    if (static_cast<int64_t>(size) != expected)
      return fmt::format("{} has {} bytes, the manifest says {}", name, size, expected);
  }
  return "";
}

ListedStep look_at(const fs::path& step_dir) {
  ListedStep entry;
  entry.name = step_dir.filename().string();
  entry.step = std::stoll(entry.name.substr(std::string("step-").size()));
  entry.changed = changed_at(step_dir);
  entry.bytes = bytes_in(step_dir);
  for (const char* suffix : {"broken", "partial", "deleting"})
    if (entry.name.find(std::string(".") + suffix) != std::string::npos) entry.state = suffix;
  try {
    if (entry.state.empty() && !is_file(step_dir / "manifest.json"))
      fail_damaged("checkpoint", "it has no manifest.json");
    if (entry.state == "partial" || entry.state == "deleting") return entry;
    const Manifest manifest = read_manifest(step_dir);
    entry.files = static_cast<int64_t>(manifest.files.size());
    entry.mesh = manifest.mesh;
    if (!entry.state.empty()) return entry;
    entry.why = why_damaged(step_dir, manifest);
    entry.state = entry.why.empty() ? kWhole : kDamaged;
  } catch (const DamagedError& error) {
    entry.why = without_subsystem(error.what());
    if (entry.state.empty()) entry.state = kDamaged;
  } catch (const Error& error) {
    entry.why = without_subsystem(error.what());
    if (entry.state.empty()) entry.state = "unreadable";
  }
  return entry;
}

fs::path checkpoints_of(const fs::path& run) {
  if (type_of_input(run) == fs::file_type::not_found)
    fail_user("checkpoint", "{} does not exist; give a run folder (run.dir)", run.string());
  if (type_of_input(run / "checkpoints") == fs::file_type::directory) return run / "checkpoints";
  const RunFolder found = list_run_folder(run);
  if (!found.steps.empty() || !found.left_over.empty() || !found.broken.empty()) return run;
  if (type_of_input(run / "manifest.json") == fs::file_type::regular)
    fail_user("checkpoint",
              "{} is a step folder, and a run folder is wanted; tessera checkpoint inspect says "
              "what it holds",
              run.string());
  fail_user("checkpoint", "{} holds no checkpoints; give a run folder (run.dir)", run.string());
}

std::string mesh_text(const nlohmann::json& mesh) {
  std::string text;
  for (const char* axis : {"dp_replicate", "dp_shard", "tp"})
    if (mesh.is_object() && mesh.contains(axis))
      text += (text.empty() ? "" : "x") + mesh[axis].dump();
  return text.empty() ? "-" : text;
}

}  // namespace

StepList list_steps(const fs::path& run) {
  StepList list;
  list.folder = checkpoints_of(clean_path(run));
  const RunFolder found = list_run_folder(list.folder);
  std::vector<fs::path> all = found.left_over;
  all.insert(all.end(), found.broken.begin(), found.broken.end());
  for (const int64_t step : found.steps) all.push_back(list.folder / step_dir_name(step));
  std::map<int64_t, double> losses;
  try {
    losses = read_validation_losses(list.folder);
  } catch (const Error& error) {
    list.notes.push_back(error.what());
  }
  for (const fs::path& path : all) {
    list.steps.push_back(look_at(path));
    ListedStep& entry = list.steps.back();
    if (entry.state != kWhole) continue;
    list.newest = std::max(list.newest.value_or(entry.step), entry.step);
    if (const auto loss = losses.find(entry.step); loss != losses.end()) entry.loss = loss->second;
  }
  std::sort(list.steps.begin(), list.steps.end(), [](const ListedStep& a, const ListedStep& b) {
    return std::pair(a.step, a.name) < std::pair(b.step, b.name);
  });
  return list;
}

void print_steps(const StepList& list, std::ostream& out) {
  out << fmt::format("checkpoints in {}\n", list.folder.string());
  if (list.steps.empty()) {
    out << "none\n";
    return;
  }
  out << fmt::format("{:>12}  {:<23}  {:>10}  {:>6}  {:<10}  {:>10}  {}\n", "step", "saved", "size",
                     "files", "mesh", "valid loss", "state");
  for (const ListedStep& entry : list.steps)
    out << fmt::format("{:>12}  {:<23}  {:>10}  {:>6}  {:<10}  {:>10}  {}{}\n", entry.step,
                       entry.changed == 0 ? "-" : utc_text(entry.changed), bytes_text(entry.bytes),
                       entry.files, mesh_text(entry.mesh),
                       entry.loss ? fmt::format("{:.4f}", *entry.loss) : "-",
                       entry.state == kWhole && entry.step == list.newest ? "whole, the newest"
                       : entry.state == kWhole || entry.state == kDamaged
                           ? entry.state
                           : fmt::format("{} ({})", entry.state, entry.name),
                       entry.why.empty() ? "" : ": " + entry.why);
}

nlohmann::ordered_json steps_json(const StepList& list) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const ListedStep& entry : list.steps) {
    nlohmann::ordered_json row{{"name", entry.name},   {"step", entry.step},
                               {"state", entry.state}, {"saved", utc_text(entry.changed)},
                               {"bytes", entry.bytes}, {"files", entry.files},
                               {"mesh", entry.mesh}};
    if (!entry.why.empty()) row["why"] = entry.why;
    if (entry.loss) row["validation_loss"] = *entry.loss;
    steps.push_back(std::move(row));
  }
  nlohmann::ordered_json root{{"checkpoints", list.folder.string()}};
  root["newest"] = list.newest ? nlohmann::ordered_json(*list.newest) : nlohmann::ordered_json();
  root["steps"] = std::move(steps);
  return root;
}

}  // namespace tessera

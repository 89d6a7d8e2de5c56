#include "checkpoint/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/files.h"

namespace tessera {
namespace {

// The step of "step-" and eight or more digits with what follows them; nullopt for other names.
std::optional<std::pair<int64_t, std::string>> parse_name(std::string_view name) {
  if (!name.starts_with("step-")) return std::nullopt;
  name.remove_prefix(5);
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || digits < 8 || name[0] == '-') return std::nullopt;
  return std::pair(step, std::string(name.substr(digits)));
}

}  // namespace

RunFolder list_run_folder(const std::filesystem::path& dir) {
  RunFolder found;
  std::error_code error;
  if (!std::filesystem::exists(dir, error)) return found;
  try {
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      const auto name = parse_name(entry.path().filename().string());
      if (!name || !entry.is_directory()) continue;
      const auto& [step, suffix] = *name;
      if (suffix.empty() && entry.path().filename() == step_dir_name(step))
        found.steps.push_back(step);
      if (suffix == ".partial" || suffix == ".deleting") found.left_over.push_back(entry.path());
      if (suffix.starts_with(".broken")) found.broken.push_back(entry.path());
    }
  } catch (const std::filesystem::filesystem_error& failure) {
    fail("checkpoint", "cannot list {}: {}", dir.string(), failure.what());
  }
  std::sort(found.steps.begin(), found.steps.end());
  std::sort(found.broken.begin(), found.broken.end());
  return found;
}

std::string step_dir_name(int64_t step) {
  return fmt::format("step-{:08}", step);
}

std::optional<std::filesystem::path> newest_step_in(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const auto has_manifest = [](const fs::path& folder) {
    std::error_code error;
    return fs::exists(folder / "manifest.json", error);
  };
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    const fs::path folder = folder_of(path);
    return has_manifest(folder) ? std::optional(folder) : std::nullopt;
  }
  if (!fs::is_directory(path, error) || has_manifest(path)) return std::nullopt;
  for (const fs::path& dir : {path / "checkpoints", path}) {
    if (!fs::is_directory(dir, error)) continue;
    const std::vector<int64_t> steps = list_run_folder(dir).steps;
    for (size_t i = steps.size(); i-- > 0;) {
      fs::path step_dir = dir / step_dir_name(steps[i]);
      if (has_manifest(step_dir)) return step_dir;
    }
  }
  return std::nullopt;
}

void check_step_folder(const std::filesystem::path& path, std::string_view key) {
  const std::string given = key.empty() ? path.string() : fmt::format("{}: {}", key, path.string());
  std::error_code error;
  if (const auto step_dir = newest_step_in(clean_path(path))) {
    if (std::filesystem::is_directory(path, error))
      fail_user("checkpoint",
                "{}; it holds a run's checkpoints, and one is wanted; the newest is {}", given,
                step_dir->string());
    fail_user("checkpoint", "{}; it is a file of a step folder, and the folder is wanted: {}",
              given, step_dir->string());
  }
  if (std::filesystem::is_directory(path / "checkpoints", error) &&
      !std::filesystem::exists(path / "manifest.json", error))
    fail_user("checkpoint", "{}; it is a run folder without any checkpoint, and one is wanted",
              given);
}

std::filesystem::path set_aside(const std::filesystem::path& step_dir) {
  std::filesystem::path target = fmt::format("{}.broken", step_dir.string());
  for (int i = 2; std::filesystem::exists(target); ++i)
    target = fmt::format("{}.broken.{}", step_dir.string(), i);
  rename_path(step_dir, target);
  sync_folder(folder_of(step_dir));
  return target;
}

void retire(const std::filesystem::path& step_dir,
            const std::function<void(const char* point)>& probe) {
  const std::filesystem::path doomed = fmt::format("{}.deleting", step_dir.string());
  rename_path(step_dir, doomed);
  probe("old one renamed");
  std::filesystem::remove_all(doomed);
  probe("old one removed");
}

}  // namespace tessera

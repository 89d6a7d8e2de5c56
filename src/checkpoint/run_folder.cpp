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

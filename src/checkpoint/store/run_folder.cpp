#include "checkpoint/store/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/files/files.h"

namespace tessera {
namespace {

constexpr int kMostNames = 1000;  // of one step and suffix

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

constexpr const char* kPartial = ".partial";
constexpr std::string_view kOfStart = ".start-";

// Takes ".start-4" from the front of what follows ".partial"; 0 where nothing of the kind is there.
int64_t take_start(std::string_view& suffix) {
  if (!suffix.starts_with(kOfStart)) return 0;
  int64_t start = 0;
  const char* const begin = suffix.data() + kOfStart.size();
  const auto [end, error] = std::from_chars(begin, suffix.data() + suffix.size(), start);
  if (error != std::errc() || start <= 0) return 0;
  suffix.remove_prefix(static_cast<size_t>(end - suffix.data()));
  return start;
}

// ".partial" or ".partial.start-4", and a number behind it, ".partial.2", where something stood in
// the way of the plain name.
bool is_suffix(std::string_view suffix, std::string_view kind) {
  if (!suffix.starts_with(kind)) return false;
  suffix.remove_prefix(kind.size());
  take_start(suffix);
  return suffix.empty() || (suffix.size() > 1 && suffix[0] == '.' &&
                            suffix.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

// The start whose number a suffix carries; 0: none.
int64_t start_of(std::string_view suffix) {
  if (!suffix.starts_with(kPartial)) return 0;
  suffix.remove_prefix(std::string_view(kPartial).size());
  return take_start(suffix);
}

}  // namespace

RunFolder list_run_folder(const std::filesystem::path& dir) {
  RunFolder found;
  if (!is_folder(dir)) return found;
  for (const auto& path : list_folder(dir)) {
    const auto name = parse_name(path.filename().string());
    std::error_code gone;  // since it was listed
    if (!name || !std::filesystem::is_directory(path, gone)) continue;
    const auto& [step, suffix] = *name;
    if (suffix.empty() && path.filename() == step_dir_name(step)) found.steps.push_back(step);
    if (is_suffix(suffix, kPartial) || is_suffix(suffix, ".deleting"))
      found.left_over.push_back(path);
    if (suffix.starts_with(".broken")) found.broken.push_back(path);
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
    return has_manifest(folder) ? std::optional(folder) : newest_step_in(folder);
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

bool is_hugging_face_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path / "config.json", error) &&
         !std::filesystem::exists(path / "manifest.json", error);
}

void check_step_folder(const std::filesystem::path& path, std::string_view key) {
  const std::string given = key.empty() ? path.string() : fmt::format("{}: {}", key, path.string());
  std::error_code error;
  if (const auto step_dir = newest_step_in(clean_path(path))) {
    if (std::filesystem::is_directory(path, error))
      fail_user("checkpoint",
                "{}; it holds a run's checkpoints, and one is wanted; the newest is {}", given,
                step_dir->string());
    fail_user("checkpoint", "{}; it is a file, and a step folder is wanted, such as {}", given,
              step_dir->string());
  }
  if (std::filesystem::is_directory(path / "checkpoints", error) &&
      !std::filesystem::exists(path / "manifest.json", error))
    fail_user("checkpoint", "{}; it is a run folder without any checkpoint, and one is wanted",
              given);
  if (is_hugging_face_folder(path))
    fail_user("checkpoint",
              "{}; it is a Hugging Face folder, and a step folder is wanted: checkpoint.init_from "
              "takes it as it is, and tessera checkpoint import makes a step folder of it",
              given);
  if (std::filesystem::is_regular_file(path, error) && is_hugging_face_folder(folder_of(path)))
    fail_user("checkpoint", "{}; it is a file of the Hugging Face folder {}; give the folder",
              given, folder_of(path).string());
}

std::string UnfinishedNames::suffix() const {
  return numbered ? fmt::format("{}{}{}", kPartial, kOfStart, start) : kPartial;
}

std::vector<std::string> remove_left_overs(const std::filesystem::path& dir,
                                           const UnfinishedNames& names) {
  std::vector<std::string> failures;
  for (std::filesystem::path left_over : list_run_folder(dir).left_over) {
    const auto [step, suffix] = *parse_name(left_over.filename().string());
    if (start_of(suffix) > names.start) continue;
    if (names.numbered && suffix.starts_with(kPartial)) {
      const std::filesystem::path doomed = free_name(dir / step_dir_name(step), ".deleting");
      std::error_code error;  // then it is removed under the name that it has
      std::filesystem::rename(left_over, doomed, error);
      if (!error) left_over = doomed;
    }
    if (const std::string why = remove_tree(left_over); !why.empty())
      failures.push_back(fmt::format("{} stays: {}", left_over.string(), why));
  }
  for (const std::string& why : remove_temporaries(dir / "latest")) failures.push_back(why);
  return failures;
}

std::filesystem::path free_name(const std::filesystem::path& step_dir, const std::string& suffix) {
  std::filesystem::path name = step_dir.string() + suffix;
  std::error_code ignored;  // a name that cannot be looked at is left alone
  for (int i = 2; std::filesystem::symlink_status(name, ignored).type() !=
                  std::filesystem::file_type::not_found;
       ++i) {
    if (i > kMostNames)
      fail("checkpoint", "{}{} and {} more such names are taken; remove them", step_dir.string(),
           suffix, i - 2);
    name = fmt::format("{}{}.{}", step_dir.string(), suffix, i);
  }
  return name;
}

std::filesystem::path set_aside(const std::filesystem::path& step_dir) {
  const std::filesystem::path target = free_name(step_dir, ".broken");
  rename_path(step_dir, target);
  sync_folder(folder_of(step_dir));
  return target;
}

std::string retire(const std::filesystem::path& step_dir,
                   const std::function<void(const char* point)>& probe) {
  try {
    const std::filesystem::path doomed = free_name(step_dir, ".deleting");
    rename_path(step_dir, doomed);
    probe("old one renamed");
    const std::string why = remove_tree(doomed);
    probe("old one removed");
    return why.empty() ? "" : fmt::format("{} stays: {}", doomed.string(), why);
  } catch (const Error& failure) {
    return fmt::format("{} stays: {}", step_dir.string(), failure.what());
  }
}

}  // namespace tessera

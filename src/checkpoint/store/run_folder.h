#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What RUN/checkpoints holds, by name alone. Only names of our own patterns are ever touched:
//   step-00000100            committed: complete, or damaged later
//   step-00000100.partial    a save that is running or was killed
//   step-00000100.deleting   a retired checkpoint whose removal is running or was killed
//   step-00000100.broken     set aside by find_latest(); kept for the user to look at
// A number is added where the plain name is taken: step-00000100.partial.2. Where a start has taken
// the run over from one that may still live, later starts have names of their own
// (UnfinishedNames): step-00000100.partial.start-4.
struct RunFolder {
  std::vector<int64_t> steps;                    // of step-N, rising (as numbers, not as text)
  std::vector<std::filesystem::path> left_over;  // .partial and .deleting
  std::vector<std::filesystem::path> broken;
};

// Lists the folder; all empty if it does not exist.
RunFolder list_run_folder(const std::filesystem::path& dir);

// step-00000100
std::string step_dir_name(int64_t step);

// Guesses which step folder was meant by a `path` that is none: of a run folder or of its
// `checkpoints`, the newest step folder that has a manifest; of a file, the step folder that holds
// it, or the newest of the run folder that holds it. nullopt: `path` is a step folder itself, or
// nothing of the kind. Goes by names alone: what is inside is not read.
std::optional<std::filesystem::path> newest_step_in(const std::filesystem::path& path);

// Whether the path is a folder with a config.json of Hugging Face and no manifest of ours.
bool is_hugging_face_folder(const std::filesystem::path& path);

// UserError if `path` is no step folder but one that newest_step_in() can guess from, a run folder
// without checkpoints, or a Hugging Face folder or file; the message names what was probably meant.
// `key`: who gave the path, such as checkpoint.resume; empty: the command line. Anything else
// passes: opening it says what is wrong.
void check_step_folder(const std::filesystem::path& path, std::string_view key = {});

// Whose unfinished folders there may be. A start that was replaced may go on for a moment, and its
// save with it; it must not take another start's folder for its own.
struct UnfinishedNames {
  int64_t start = 0;      // this start's number; 0: none
  bool numbered = false;  // a start of the run was replaced: this one's folders carry its number

  // ".partial", or ".partial.start-4".
  std::string suffix() const;
};

// Removes what killed or failed saves and removals left, as far as that can be done. What stays
// comes back as one line each: it costs space, and nothing else waits for it. Folders that carry
// the number of a later start are left alone. Where names are numbered, a folder is renamed before
// it is removed: from then on the process that fills it cannot commit it any more.
std::vector<std::string> remove_left_overs(const std::filesystem::path& dir,
                                           const UnfinishedNames& names = {});

// STEP_DIR with a suffix such as ".partial", and a number where that name is taken.
std::filesystem::path free_name(const std::filesystem::path& step_dir, const std::string& suffix);

// Renames a step folder to step-N.broken (or .broken.2, ...) and returns the new path.
std::filesystem::path set_aside(const std::filesystem::path& step_dir);

// Renames a committed step folder to step-N.deleting, then removes it: what is half removed never
// looks like a checkpoint. Returns a message if something stays; empty if it is gone. Throws no
// Error.
std::string retire(const std::filesystem::path& step_dir,
                   const std::function<void(const char* point)>& probe);

}  // namespace tessera

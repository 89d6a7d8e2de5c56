#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// What RUN/checkpoints holds, by name alone. Only names of our own patterns are ever touched:
//   step-00000100            committed: complete, or damaged later
//   step-00000100.partial    a save that is running or was killed
//   step-00000100.deleting   a retired checkpoint whose removal is running or was killed
//   step-00000100.broken     set aside by find_latest(); kept for the user to look at
struct RunFolder {
  std::vector<int64_t> steps;                    // of step-N, rising (as numbers, not as text)
  std::vector<std::filesystem::path> left_over;  // .partial and .deleting
  std::vector<std::filesystem::path> broken;
};

// Lists the folder; all empty if it does not exist.
RunFolder list_run_folder(const std::filesystem::path& dir);

// step-00000100
std::string step_dir_name(int64_t step);

// Renames a step folder to step-N.broken (or .broken.2, ...) and returns the new path.
std::filesystem::path set_aside(const std::filesystem::path& step_dir);

// Renames a committed step folder to step-N.deleting, then removes it: what is half removed never
// looks like a checkpoint.
void retire(const std::filesystem::path& step_dir,
            const std::function<void(const char* point)>& probe);

}  // namespace tessera

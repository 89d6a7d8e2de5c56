#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// Writes a small file into a folder and removes it again, so that a folder that cannot be written
// to is found now and not hours later: Error with the reason. Returns one line for the user about
// each thing that the file system cannot do (sync files, sync folders) and that the program then
// does without.
std::vector<std::string> try_folder(const std::filesystem::path& folder);

// Removes the small files of processes that were killed in try_folder().
void remove_trials(const std::filesystem::path& folder);

}  // namespace tessera

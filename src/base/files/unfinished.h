#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// A command writes its output to `TARGET.partial-PID`, a file or a folder beside TARGET, and
// renames it (or what it holds) at the end, so that TARGET is whole whenever it is there. A process
// that is killed leaves it behind; the next one with the same TARGET removes it.

// TARGET.partial-PID of this process; numbers above 1 for a name that is taken.
std::filesystem::path unfinished_name(const std::filesystem::path& target, int number = 1);

// A user may have files of such names too. So a folder is removed only if a mark in it says which
// process made it, and a file only if no process of its PID runs here and nobody holds its lock.

// Marks a folder as this process's, by a file in it.
void mark_unfinished(const std::filesystem::path& folder);
// The marked folders of TARGET whose process has certainly ended.
// Those of processes that were killed before they could mark them, and which are empty, are removed
// on the way.
std::vector<std::filesystem::path> unfinished_folders(const std::filesystem::path& target);

// Locks a file of this process, until the descriptor is closed: others see that somebody is at
// work. Where the file system has no locks, they leave it alone in any case.
void lock_unfinished(int fd);
// Removes files TARGET.partial-PID where this machine has no process PID and nobody holds the lock.
// What cannot be removed stays.
void remove_unfinished_files(const std::filesystem::path& target);

}  // namespace tessera

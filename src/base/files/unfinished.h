#pragma once

#include <filesystem>
#include <string>

namespace tessera {

// What a command writes to before its output stands whole under TARGET: `TARGET.partial-PID`, a
// file or a folder beside it, renamed at the end. A process that is killed leaves it; the next one
// with the same TARGET removes it.

// TARGET.partial-PID of this process; numbers above 1 for a name that is taken.
std::filesystem::path unfinished_name(const std::filesystem::path& target, int number = 1);

// Names beside TARGET belong to the user, whatever they look like: a folder is known for ours by a
// mark in it, which says whose it is; a file by its name and a lock.

// Marks a folder as this process's, and takes the mark away when the folder is done.
void mark_unfinished(const std::filesystem::path& folder);
void unmark_unfinished(const std::filesystem::path& folder);
// Removes marked folders of TARGET whose process has certainly ended, as far as that goes.
void remove_unfinished_folders(const std::filesystem::path& target);

// Locks a file of this process, until the descriptor is closed: others see that somebody is at
// work. Where the file system has no locks, they leave it alone in any case.
void lock_unfinished(int fd);
// Removes files of TARGET of which this machine has no process and nobody holds the lock.
void remove_unfinished_files(const std::filesystem::path& target);

}  // namespace tessera

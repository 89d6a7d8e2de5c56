#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

// The starts of a run are numbered 1, 2, ... in the order in which they came to own its folder.
struct StartCount {
  int64_t number = 0;
  bool replaced_one = false;  // this start, or one before it, has put off one that may still live
  std::string warning;        // the start could not be written down; empty: it is
};

// Counts this start: adds a line to RUN/logs/starts with its number, time, host, process, job and
// ranks, and whether it took the folder over from a process that may still live (`took_over`). Only
// for the process that holds the run folder's lock. A file that cannot be read or written is a
// warning; the number is then above those that the folders RUN/logs/start-NNNN carry.
StartCount count_start(const std::filesystem::path& run_dir, bool took_over, int ranks, int nodes);

}  // namespace tessera

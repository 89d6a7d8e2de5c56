#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/store/tool_options.h"

namespace tessera {

// Checks a step folder against every checksum that it has: manifest, index, headers, data. Threads
// share the files. Returns a line for each file that is damaged, which names it and the piece;
// empty if the checkpoint is whole. DamagedError where the manifest or the index is damaged or a
// file is missing or short, since then nothing says what the data should be. Other errors as
// StoredCheckpoint::open().
std::vector<std::string> verify_step(const std::filesystem::path& step_dir,
                                     const ToolOptions& tool = {});

}  // namespace tessera

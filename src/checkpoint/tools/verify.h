#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/store/tool_options.h"

namespace tessera {

// Checks a step folder against every checksum that it has: manifest, headers, data. Threads share
// the files. Returns a line that names file and piece for each file whose data is damaged; empty if
// the checkpoint is whole. DamagedError where manifest or headers are damaged or the pieces leave a
// gap, since then nothing says what the data should be. Other errors as CheckpointReader.
std::vector<std::string> verify_step(const std::filesystem::path& step_dir,
                                     const ToolOptions& tool = {});

}  // namespace tessera

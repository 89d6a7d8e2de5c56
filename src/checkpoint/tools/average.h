#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/store/tool_options.h"

namespace tessera {

// Writes the step folder OUT with the mean of the weights of two or more step folders, of whatever
// meshes, and nothing else: no optimizer's states, so a run starts from it with init_from. Each
// element is summed in fp64 in the order of `step_dirs`, divided once and rounded once, to fp32 (to
// fp64 where one of them stores its weights so). The model's configuration, and the Hugging Face
// files that were carried along, are the first's; step, samples and tokens those of the newest.
// UserError that names the tensors if names or shapes do not agree. An existing step folder may be
// replaced, as by consolidate(). Returns notes for the user, a line each.
std::vector<std::string> average_steps(const std::vector<std::filesystem::path>& step_dirs,
                                       const std::filesystem::path& out,
                                       const ToolOptions& tool = {});

}  // namespace tessera

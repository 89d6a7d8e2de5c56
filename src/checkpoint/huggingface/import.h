#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/huggingface/hf_tensors.h"
#include "checkpoint/store/tool_options.h"

namespace tessera {

// The inverse of consolidate(): makes of a Hugging Face folder (config.json and *.safetensors, with
// or without an index) a step folder that holds weights only, in fp32. Streams in bounded memory;
// matrices that are stored transposed are read whole, one at a time in all threads. `recognize`
// sees config.json before anything is written, and throws if the model is not one that is wanted.
// Threads share the files of the step folder, each of which has at most 1 GiB or one tensor. An
// existing step folder may be replaced, as by consolidate(). Returns notes for the user, a line
// each. Errors and notes as HuggingFaceSource has them.
std::vector<std::string> import_hugging_face(
    const std::filesystem::path& hf_dir, const std::filesystem::path& step_dir,
    const std::function<HfModel(const nlohmann::json& config)>& recognize =
        [](const nlohmann::json&) { return HfModel(); },
    const ToolOptions& tool = {});

}  // namespace tessera

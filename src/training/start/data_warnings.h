#pragma once

#include <string>
#include <vector>

#include "training/start/open_data.h"
#include "training/start/run_start.h"

namespace tessera {

// Warnings, one text each, about data that are allowed but most likely not what was meant: tokens
// that are bytes for a model whose ids mean something else, sequences of multimodal data that are
// no text.
std::vector<std::string> data_warnings(const Config& config, const Data& data,
                                       const RunStart& start);

}  // namespace tessera

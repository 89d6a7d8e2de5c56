#pragma once

#include <string>
#include <vector>

#include "training/start/open_data.h"
#include "training/start/run_start.h"

namespace tessera {

// What of the data is allowed and most likely not meant, a text each: tokens that are bytes for a
// model whose ids mean something else, sequences of multimodal data that are no text.
std::vector<std::string> data_warnings(const Config& config, const Data& data,
                                       const RunStart& start);

}  // namespace tessera

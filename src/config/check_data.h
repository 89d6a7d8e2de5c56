#pragma once

#include "config/config.h"

namespace tessera {

// The rules of `data` and `eval` with each other and with the model. UserError.
void check_data(const Config& config);

}  // namespace tessera

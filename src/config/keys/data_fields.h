#pragma once

#include "config/keys/fields.h"

namespace tessera {

// The keys of `data`.
Section data_section(DataSection& data);

}  // namespace tessera

#pragma once

#include <string>

namespace tessera {

// This machine's name, as the system has it; "unknown" if it does not say.
std::string host_name();

}  // namespace tessera

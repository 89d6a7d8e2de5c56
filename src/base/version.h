#pragma once

namespace tessera {

// Name and version, such as "tessera 0.1.0": what --version prints and checkpoints record.
const char* program_version();

}  // namespace tessera

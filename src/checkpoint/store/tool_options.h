#pragma once

#include "base/process/byte_progress.h"

namespace tessera {

// What all tools on checkpoints have in common. Their results do not depend on it.
struct ToolOptions {
  int threads = 1;
  bool replace = false;         // an existing output folder (Replace, whole_folder.h)
  ByteProgress::Show progress;  // sees how many bytes are done; empty: nobody looks
};

}  // namespace tessera

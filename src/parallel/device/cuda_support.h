#pragma once

namespace tessera {

// Whether this program was built with CUDA.
bool built_with_cuda();

// Number of GPUs that this process sees; 0 without a driver and in a build without CUDA.
int visible_gpus();

}  // namespace tessera

// The twin of cuda_gpus.cpp in builds without CUDA.
#include "doctor/probes/probes.h"

namespace tessera::doctor {

std::vector<Gpu> probe_gpus() {
  return {};
}

Texts probe_gpu_versions() {
  return {};
}

}  // namespace tessera::doctor

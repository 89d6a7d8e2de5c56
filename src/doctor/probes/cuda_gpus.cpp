#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cctype>

#include "doctor/probes/probes.h"
#include "parallel/device/cuda_support.h"

namespace tessera::doctor {
namespace {

// CUDA writes versions as 1000 * major + 10 * minor.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::vector<Gpu> probe_gpus() {
  std::vector<Gpu> gpus;
  const int count = visible_gpus();
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    char bus[32] = {};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess ||
        cudaDeviceGetPCIBusId(bus, sizeof bus, index) != cudaSuccess)
      continue;
    std::string name = bus;  // /sys writes it in small letters
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string path = device_path("/sys/bus/pci/devices/" + name);
    gpus.push_back(
        {properties.name, static_cast<int64_t>(properties.totalGlobalMem), numa_of(path), path});
  }
  return gpus;
}

Texts probe_gpu_versions() {
  Texts versions;
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess)
    versions["CUDA driver"] = version_text(version);
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) versions["CUDA"] = version_text(version);
  if (ncclGetVersion(&version) == ncclSuccess)
    versions["NCCL"] = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return versions;
}

}  // namespace tessera::doctor

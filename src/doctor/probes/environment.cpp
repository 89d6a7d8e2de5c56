#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "doctor/probes/probes.h"

namespace tessera::doctor {
namespace {

// Beginnings of names. mpirun sets many more variables that begin with OMPI_MCA_, most of them for
// itself and some otherwise for each rank; these are the parts of Open MPI that move data. Of
// Slurm's and TESSERA_'s own, many differ by rank or node by design: those that matter are named in
// full.
constexpr std::string_view kFamilies[] = {
    "OMPI_MCA_pml",   "OMPI_MCA_btl",   "OMPI_MCA_mtl", "OMPI_MCA_osc", "OMPI_MCA_coll",
    "OMPI_MCA_opal_", "OMPI_MCA_hwloc", "UCX_",         "NCCL_",        "FI_",
    "OMP_",           "GOMP_",          "KMP_",         "MKL_",         "PSM2_",
};
constexpr std::string_view kNames[] = {
    "SLURM_JOB_ID",        "SLURM_NTASKS",
    "SLURM_CPUS_PER_TASK", "SLURM_MPI_TYPE",
    "SLURM_RESTART_COUNT", "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",   "SLURM_CPU_BIND_TYPE",
    "TESSERA_CPU",         "ATEN_CPU_CAPABILITY",
    "LD_LIBRARY_PATH",     "LD_PRELOAD",
    "MALLOC_ARENA_MAX",    "CUDA_DEVICE_MAX_CONNECTIONS",
};

bool matters(std::string_view name) {
  for (const std::string_view family : kFamilies)
    if (name.starts_with(family)) return true;
  for (const std::string_view known : kNames)
    if (name == known) return true;
  return false;
}

bool is_set(const char* name) {
  return std::getenv(name) != nullptr;
}

}  // namespace

std::string probe_launcher() {
  if (is_set("OMPI_COMM_WORLD_SIZE")) return "by mpirun";
  if (is_set("PMIX_RANK") || is_set("PMI_RANK"))
    return is_set("SLURM_PROCID") ? "by srun" : "by a launcher with PMI";
  return "alone";
}

Texts probe_environment() {
  Texts found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !matters(text.substr(0, equals))) continue;
    found[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return found;
}

}  // namespace tessera::doctor

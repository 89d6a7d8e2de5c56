#include <filesystem>
#include <fstream>

#include "base/process/process_identity.h"
#include "doctor/probes/probes.h"

namespace tessera::doctor {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  line.erase(line.find_last_not_of(" \t\r\n") + 1);
  return line;
}

std::string device_path(const std::string& link) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(link, error);
  return error ? std::string() : path.string();
}

int numa_of(const std::string& device) {
  std::ifstream in(device + "/numa_node");
  int node = -1;
  return in >> node ? node : -1;
}

RankFacts collect_facts(int rank, int threads, Depth depth) {
  RankFacts facts;
  facts.rank = rank;
  facts.host = ProcessIdentity::own().host;
  facts.kernel_run = first_line("/proc/sys/kernel/random/boot_id");
  facts.launcher = probe_launcher();
  std::error_code error;
  facts.working_folder = std::filesystem::current_path(error).string();
  facts.versions = probe_versions();
  facts.environment = probe_environment();
  facts.addresses = probe_addresses();
  facts.cores = probe_cores(threads);
  facts.limits = probe_limits();
  facts.memory = probe_memory();
  if (depth == Depth::kStart) return facts;
  facts.transports = probe_transports();
  facts.adapters = probe_adapters();
  facts.gpus = probe_gpus();
  facts.versions.merge(probe_gpu_versions());
  return facts;
}

}  // namespace tessera::doctor

#include "doctor/facts/device_path.h"

#include <filesystem>

namespace tessera::doctor {

// A path is /sys/devices/pci0000:17 (the host bridge) /0000:17:01.0 (its root port) /... So two
// devices below one root port have a switch in common.
std::string distance_text(const std::string& a, int numa_a, const std::string& b, int numa_b) {
  if (a.empty() || b.empty()) return "unknown";
  const std::filesystem::path path_a(a), path_b(b);
  int bridges = 0;
  auto at_b = path_b.begin();
  for (auto at_a = path_a.begin(); at_a != path_a.end() && at_b != path_b.end() && *at_a == *at_b;
       ++at_a, ++at_b)
    if (at_a->string().find(':') != std::string::npos) ++bridges;
  if (bridges >= 2) return "one PCIe switch";
  if (bridges == 1) return "one host bridge";
  return numa_a >= 0 && numa_a == numa_b ? "one NUMA node" : "another NUMA node";
}

}  // namespace tessera::doctor

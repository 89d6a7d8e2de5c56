#pragma once

#include <string>

namespace tessera::doctor {

// How near two PCI devices are, by their folders in /sys (links resolved) and NUMA nodes: "one PCIe
// switch", "one host bridge", "one NUMA node", "another NUMA node"; "unknown" where a folder is
// empty. A network device is best on one switch with the GPU whose data it sends.
std::string distance_text(const std::string& a, int numa_a, const std::string& b, int numa_b);

}  // namespace tessera::doctor

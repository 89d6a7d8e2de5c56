#include <algorithm>
#include <filesystem>

#include "doctor/probes/probes.h"

namespace tessera::doctor {

std::vector<Adapter> probe_adapters() {
  std::vector<Adapter> adapters;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    const std::string folder = entry.path().string(), port = folder + "/ports/1";
    Adapter adapter;
    adapter.name = entry.path().filename().string();
    const std::string state = first_line(port + "/state");  // "4: ACTIVE"
    const size_t colon = state.find(": ");
    adapter.state = colon == std::string::npos ? state : state.substr(colon + 2);
    adapter.rate = first_line(port + "/rate");
    adapter.kind = first_line(port + "/link_layer");
    adapter.path = device_path(folder + "/device");
    adapter.numa = numa_of(adapter.path);
    adapters.push_back(std::move(adapter));
  }
  std::sort(adapters.begin(), adapters.end(),
            [](const Adapter& a, const Adapter& b) { return a.name < b.name; });
  return adapters;
}

}  // namespace tessera::doctor

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text/quantities.h"
#include "doctor/facts/device_path.h"
#include "doctor/facts/numbers.h"
#include "doctor/report/sections.h"

namespace tessera::doctor {
namespace {

constexpr size_t kMostRows = 24;

const RankFacts& first_of(const Node& node, const std::vector<RankFacts>& facts) {
  return facts[static_cast<size_t>(node.ranks[0])];
}

// One text where all ranks have the same, else each with its ranks.
std::string value_of_all(const std::vector<RankFacts>& facts,
                         const std::function<std::string(const RankFacts&)>& value) {
  const Groups groups = group_ranks(facts, value);
  return groups.size() == 1 ? groups[0].first : groups_text(groups, facts);
}

std::string limit_text(int64_t limit, bool bytes) {
  if (limit == kUnlimited) return "unlimited";
  return bytes ? bytes_text(limit) : fmt::format("{}", limit);
}

std::string numa_text(int numa) {
  return numa < 0 ? "NUMA node not told" : fmt::format("NUMA node {}", numa);
}

}  // namespace

Table versions_table(const std::vector<RankFacts>& facts) {
  std::set<std::string> known;
  for (const RankFacts& rank : facts)
    for (const auto& [name, value] : rank.versions) known.insert(name);
  Table table{"versions", {}};
  // The program first, the others as they are sorted.
  std::vector<std::string> names(known.begin(), known.end());
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name == "program"; });
  for (const std::string& name : names)
    table.rows.push_back({name, value_of_all(facts, [&](const RankFacts& rank) {
                            const auto found = rank.versions.find(name);
                            return found == rank.versions.end() ? std::string() : found->second;
                          })});
  return table;
}

Table environment_table(const std::vector<RankFacts>& facts) {
  std::set<std::string> names;
  for (const RankFacts& rank : facts)
    for (const auto& [name, value] : rank.environment) names.insert(name);
  Table table{"environment", {}};
  for (const std::string& name : names)
    table.rows.push_back({name, value_of_all(facts, [&](const RankFacts& rank) {
                            const auto found = rank.environment.find(name);
                            return found == rank.environment.end() ? std::string("not set")
                                                                   : found->second;
                          })});
  if (table.rows.empty()) table.rows.push_back({"no variable of MPI, UCX, NCCL, Slurm, OpenMP"});
  return table;
}

Table transports_table(const std::vector<RankFacts>& facts) {
  Table table{"transports", {}};
  const Transports& first = facts[0].transports;
  if (first.thread_level.empty()) {
    table.rows.push_back({"MPI is not started: one process without a launcher"});
    return table;
  }
  table.rows.push_back({"thread level", first.thread_level});
  const std::string chosen = value_of_all(facts, [](const RankFacts& rank) {
    return fmt::format("{}", fmt::join(rank.transports.components, ", "));
  });
  table.rows.push_back({"MPI's messages", chosen.empty() ? "not told by this MPI" : chosen});
  const bool ucx = chosen.find("pml ucx") != std::string::npos;
  table.rows.push_back({"UCX", ucx ? "in use; UCX_LOG_LEVEL=info prints the devices that it chooses"
                                   : "not in use"});
  std::set<std::string> names;
  for (const RankFacts& rank : facts)
    for (const auto& [name, value] : rank.transports.settings) names.insert(name);
  for (const std::string& name : names)
    table.rows.push_back({name, value_of_all(facts, [&](const RankFacts& rank) {
                            const auto found = rank.transports.settings.find(name);
                            return found == rank.transports.settings.end() ? std::string()
                                                                           : found->second;
                          })});
  return table;
}

Table network_table(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes) {
  Table table{"network", {}};
  std::map<std::string, std::set<std::string>> hosts;
  for (const Node& node : nodes)
    for (const NetworkAddress& address : first_of(node, facts).addresses) {
      table.rows.push_back({node.host, address.interface, address.address, address.subnet,
                            address.mbit > 0 ? fmt::format("{} Mbit/s", address.mbit) : ""});
      hosts[address.subnet].insert(node.host);
    }
  table.shorten(kMostRows);
  std::vector<std::string> shared;
  for (const auto& [subnet, of] : hosts)
    if (of.size() == nodes.size()) shared.push_back(subnet);
  if (nodes.size() > 1)
    table.rows.push_back(
        {fmt::format("subnets of all nodes: {}",
                     shared.empty() ? "none" : fmt::format("{}", fmt::join(shared, ", ")))});
  if (table.rows.empty()) table.rows.push_back({"no address besides loopback"});
  return table;
}

Table devices_table(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes) {
  Table table{"devices", {}};
  for (const Node& node : nodes) {
    const RankFacts& first = first_of(node, facts);
    for (const Gpu& gpu : first.gpus)
      table.rows.push_back({node.host, gpu.name, bytes_text(gpu.memory), numa_text(gpu.numa)});
    for (const Adapter& adapter : first.adapters) {
      table.rows.push_back({node.host, adapter.name,
                            fmt::format("{}, {}, {}", adapter.kind, adapter.state, adapter.rate),
                            numa_text(adapter.numa)});
      for (size_t i = 0; i < first.gpus.size(); ++i)
        table.rows.push_back(
            {node.host, adapter.name, fmt::format("to GPU {}", i),
             distance_text(adapter.path, adapter.numa, first.gpus[i].path, first.gpus[i].numa)});
    }
  }
  table.shorten(kMostRows);
  if (table.rows.empty()) table.rows.push_back({"no GPU that this program sees, no InfiniBand"});
  return table;
}

Table cores_table(const std::vector<RankFacts>& facts) {
  Table table{"cores", {}};
  for (const RankFacts& rank : facts) {
    const Cores& cores = rank.cores;
    table.rows.push_back(
        {fmt::format("rank {}", rank.rank), rank.host,
         fmt::format("hardware threads {} of {}", numbers_text(cores.bound),
                     numbers_text(cores.allowed)),
         fmt::format("NUMA {}", cores.numa.empty() ? "not told" : numbers_text(cores.numa)),
         fmt::format("computes with {}", cores.threads)});
  }
  table.shorten(kMostRows);
  return table;
}

Table limits_table(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes) {
  Table table{"memory and limits", {}};
  for (const Node& node : nodes) {
    const RankFacts& first = first_of(node, facts);
    const Memory& memory = first.memory;
    const Limits& limits = first.limits;
    table.rows.push_back({node.host,
                          fmt::format("memory {} free of {}", bytes_text(memory.available),
                                      bytes_text(memory.total)),
                          fmt::format("group limit {}", limit_text(memory.group_limit, true)),
                          fmt::format("/dev/shm {} free of {}", bytes_text(memory.shared_free),
                                      bytes_text(memory.shared_total))});
    table.rows.push_back({node.host,
                          fmt::format("ulimit -v {}", limit_text(limits.address_space, true)),
                          fmt::format("-l {}", limit_text(limits.locked_memory, true)),
                          fmt::format("-n {}, -u {}", limit_text(limits.files, false),
                                      limit_text(limits.processes, false))});
  }
  table.shorten(kMostRows);
  return table;
}

Table clocks_table(const std::vector<double>& ahead, const std::vector<Node>& nodes) {
  Table table{"clocks", {}};
  for (const Node& node : nodes)
    table.rows.push_back(
        {node.host,
         fmt::format("{:+.3f} s to {}", ahead[static_cast<size_t>(node.ranks[0])], nodes[0].host)});
  table.shorten(kMostRows);
  return table;
}

}  // namespace tessera::doctor

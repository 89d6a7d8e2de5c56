#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "doctor/facts/numbers.h"
#include "doctor/judge/judge.h"

namespace tessera::doctor {
namespace {

const RankFacts& first_of(const Node& node, const std::vector<RankFacts>& facts) {
  return facts[static_cast<size_t>(node.ranks[0])];
}

// "n1, n2 and n3"; of many the first three.
std::string hosts_text(std::vector<std::string> hosts) {
  constexpr size_t kMost = 3;
  const size_t all = hosts.size();
  hosts.resize(std::min(all, kMost));
  return all > kMost ? fmt::format("{} and {} more", fmt::join(hosts, ", "), all - kMost)
                     : fmt::format("{}", fmt::join(hosts, ", "));
}

// Whether a comma-separated list names the interface or begins one of its items with it
// ("eth0:1").
bool lists(const std::string& list, const std::string& interface) {
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, comma - at);
    if (item == interface || item.starts_with(interface + ":")) return true;
    at = comma + 1;
  }
  return false;
}

std::string variable(const RankFacts& rank, const char* name) {
  const auto found = rank.environment.find(name);
  return found == rank.environment.end() ? "" : found->second;
}

// Whether MPI has been told not to use an interface, by including others or by excluding it.
bool left_out(const RankFacts& rank, const std::string& interface) {
  const std::string included = variable(rank, "OMPI_MCA_btl_tcp_if_include");
  const std::string excluded = variable(rank, "OMPI_MCA_btl_tcp_if_exclude");
  const std::string devices = variable(rank, "UCX_NET_DEVICES");
  return (!included.empty() && !lists(included, interface)) || lists(excluded, interface) ||
         (!devices.empty() && devices != "all" && !lists(devices, interface));
}

std::set<std::string> subnets_of(const RankFacts& rank) {
  std::set<std::string> subnets;
  for (const NetworkAddress& address : rank.addresses) subnets.insert(address.subnet);
  return subnets;
}

}  // namespace

Findings judge_network(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes) {
  Findings findings;
  if (nodes.size() < 2) return findings;

  std::map<std::string, std::vector<size_t>> owners;  // nodes by address
  std::map<std::string, std::string> interface_of;
  std::set<std::string> shared = subnets_of(first_of(nodes[0], facts));
  for (size_t i = 0; i < nodes.size(); ++i) {
    const RankFacts& node = first_of(nodes[i], facts);
    for (const NetworkAddress& address : node.addresses) {
      if (left_out(node, address.interface)) continue;
      owners[address.address].push_back(i);
      interface_of.try_emplace(address.address, address.interface);
    }
    const std::set<std::string> own = subnets_of(node);
    std::erase_if(shared, [&](const std::string& subnet) { return !own.contains(subnet); });
  }

  // An interface of the first node that leads to all others, and has an address of its own.
  std::string good;
  for (const NetworkAddress& address : first_of(nodes[0], facts).addresses)
    if (good.empty() && shared.contains(address.subnet) && owners[address.address].size() == 1)
      good = address.interface;
  for (const auto& [address, who] : owners) {
    if (who.size() < 2) continue;
    std::vector<std::string> hosts;
    for (const size_t node : who) hosts.push_back(nodes[node].host);
    const std::string& interface = interface_of[address];
    findings.push_back(
        {Level::kWarning, "network",
         fmt::format("{} have the same address {} ({}): MPI may try to reach one of them through "
                     "it, and wait for ever",
                     hosts_text(hosts), address, interface),
         good.empty()
             ? fmt::format("mpirun --mca btl_tcp_if_exclude lo,{}", interface)
             : fmt::format(
                   "mpirun --mca btl_tcp_if_exclude lo,{}; with UCX set UCX_NET_DEVICES={}, "
                   "for NCCL NCCL_SOCKET_IFNAME={}",
                   interface, good, good)});
  }
  if (shared.empty())
    findings.push_back(
        {Level::kWarning, "network",
         fmt::format("no subnet is on all {} nodes; {} has {}", nodes.size(), nodes[0].host,
                     fmt::join(subnets_of(first_of(nodes[0], facts)), ", ")),
         "look whether the nodes reach each other (ping); routers between them cost time"});
  return findings;
}

Findings judge_transports(const std::vector<RankFacts>& facts) {
  Findings findings;
  const auto chosen = [](const RankFacts& rank) {
    std::vector<std::string> pmls;
    for (const std::string& component : rank.transports.components)
      if (component.starts_with("pml ")) pmls.push_back(component);
    return fmt::format("{}", fmt::join(pmls, ", "));
  };
  const Groups groups = group_ranks(facts, chosen);
  if (groups.size() > 1)
    findings.push_back({Level::kWarning, "transports",
                        fmt::format("MPI has chosen {}", groups_text(groups, facts)),
                        "choose one for all: mpirun --mca pml ucx (or ob1)"});
  std::vector<int> ranks;
  std::string device;
  for (const RankFacts& rank : facts) {
    const std::string pml = chosen(rank);
    if (pml.empty() || pml.find("pml ob1") == std::string::npos) continue;
    for (const Adapter& adapter : rank.adapters) {
      if (adapter.state != "ACTIVE") continue;
      if (ranks.empty()) device = adapter.name;
      ranks.push_back(rank.rank);
      break;
    }
  }
  if (!ranks.empty())
    findings.push_back(
        {Level::kWarning, "transports",
         fmt::format("{} send MPI's messages by pml ob1, though {} is active", ranks_text(ranks),
                     device),
         "mpirun --mca pml ucx; `ompi_info | grep ucx` says whether this MPI has it"});
  return findings;
}

Findings judge_clocks(const std::vector<double>& ahead, const std::vector<RankFacts>& facts,
                      const std::vector<Node>& nodes) {
  constexpr double kMost = 1.0;
  Findings findings;
  for (const Node& node : nodes) {
    if (nodes.size() < 2) break;  // one clock
    const double seconds = ahead[static_cast<size_t>(node.ranks[0])];
    if (seconds <= kMost && seconds >= -kMost) continue;
    findings.push_back(
        {Level::kWarning, "clocks",
         fmt::format("the clock of {} is {:.1f} s {} that of {}", node.host,
                     seconds > 0 ? seconds : -seconds, seconds > 0 ? "ahead of" : "behind",
                     facts[0].host),
         "let the nodes keep their time alike (chronyc tracking, timedatectl): lines "
         "of logs and times of files are in a wrong order"});
  }
  return findings;
}

}  // namespace tessera::doctor

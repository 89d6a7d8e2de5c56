#include <fmt/format.h>

#include <map>
#include <string>

#include "base/text/quantities.h"
#include "doctor/facts/numbers.h"
#include "doctor/judge/judge.h"

namespace tessera::doctor {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kMemoryPerRank = 512 * kMiB;       // LibTorch alone takes about 250 MiB
constexpr int64_t kAddressSpace = 16 * 1024 * kMiB;  // libraries reserve far more than they use
constexpr int64_t kLockedMemory = 64 * kMiB;
constexpr int64_t kFilesBesidePeers = 256;
constexpr int64_t kProcessesPerRank = 64;

bool below(int64_t limit, int64_t wanted) {
  return limit != kUnlimited && limit < wanted;
}

// The ranks of one node, first, for a message: "ranks 0-3 (n1)".
std::string node_text(const Node& node) {
  return fmt::format("{} ({})", ranks_text(node.ranks), node.host);
}

}  // namespace

Findings judge_limits(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes,
                      int64_t shared_per_rank) {
  Findings findings;
  const auto warn = [&](std::string what, std::string next) {
    findings.push_back({Level::kWarning, "limits", std::move(what), std::move(next)});
  };
  // A rank talks to all others over TCP, and has files and libraries open besides.
  const int64_t files = 2 * static_cast<int64_t>(facts.size()) + kFilesBesidePeers;
  for (const Node& node : nodes) {
    const RankFacts& first = facts[static_cast<size_t>(node.ranks[0])];
    const Limits& limits = first.limits;
    const Memory& memory = first.memory;
    const auto ranks = static_cast<int64_t>(node.ranks.size());
    if (memory.available > 0 && memory.available < ranks * kMemoryPerRank)
      warn(fmt::format("{}: {} of memory are free, {} a rank", node_text(node),
                       bytes_text(memory.available), bytes_text(memory.available / ranks)),
           "start fewer ranks a node, ask for more memory (sbatch --mem), or end what else runs "
           "there");
    if (ranks > 1 && memory.shared_total > 0 && memory.shared_free < ranks * shared_per_rank)
      warn(fmt::format("{}: /dev/shm has {} free of {}, less than {} a rank", node_text(node),
                       bytes_text(memory.shared_free), bytes_text(memory.shared_total),
                       bytes_text(shared_per_rank)),
           "enlarge it (docker run --shm-size=1g; mount -o remount,size=1g /dev/shm), remove old "
           "files there, or communication.shared_memory: false");
    if (!first.adapters.empty() && below(limits.locked_memory, kLockedMemory))
      warn(fmt::format(
               "{}: only {} of memory can be locked (ulimit -l), which InfiniBand and RoCE need",
               node_text(node), bytes_text(limits.locked_memory)),
           "memlock unlimited in /etc/security/limits.conf; for slurmd LimitMEMLOCK=infinity");
    if (below(limits.address_space, kAddressSpace))
      warn(fmt::format("{}: only {} of addresses (ulimit -v)", node_text(node),
                       bytes_text(limits.address_space)),
           "ulimit -v unlimited; limit memory by the batch system");
    if (below(limits.files, files))
      warn(fmt::format("{}: only {} open files (ulimit -n), fewer than {}", node_text(node),
                       limits.files, files),
           fmt::format("ulimit -n {}, or nofile in /etc/security/limits.conf", files));
    if (below(limits.processes, ranks * kProcessesPerRank))
      warn(fmt::format("{}: only {} processes and threads (ulimit -u) for {} ranks",
                       node_text(node), limits.processes, ranks),
           "ulimit -u unlimited, or nproc in /etc/security/limits.conf");
  }
  return findings;
}

Findings judge_devices(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes) {
  Findings findings;
  std::map<size_t, std::vector<std::string>> by_gpus;
  for (const Node& node : nodes) {
    const RankFacts& first = facts[static_cast<size_t>(node.ranks[0])];
    for (const Adapter& adapter : first.adapters)
      if (adapter.state != "ACTIVE")
        findings.push_back(
            {Level::kWarning, "devices",
             fmt::format("{} of {} is {}", adapter.name, node.host,
                         adapter.state.empty() ? "in no state" : adapter.state),
             "look at its cable and the fabric (ibstat); where it is not meant to be "
             "used, name the others in UCX_NET_DEVICES and NCCL_IB_HCA"});
    by_gpus[first.gpus.size()].push_back(node.host);
  }
  if (by_gpus.size() > 1) {
    const auto& [few, where] = *by_gpus.begin();
    const auto& [many, rest] = *by_gpus.rbegin();
    findings.push_back({Level::kWarning, "devices",
                        fmt::format("{} sees {} GPUs, {} sees {}", where[0], few, rest[0], many),
                        "nvidia-smi on that node; CUDA_VISIBLE_DEVICES; sbatch --gpus-per-node"});
  }
  return findings;
}

}  // namespace tessera::doctor

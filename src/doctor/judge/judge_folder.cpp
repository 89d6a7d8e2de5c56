#include <fmt/format.h>

#include <algorithm>

#include "base/text/quantities.h"
#include "doctor/facts/numbers.h"
#include "doctor/judge/judge.h"

namespace tessera::doctor {
namespace {

constexpr int64_t kLeastRoom = int64_t{1} << 30;
constexpr double kLeastBytesPerSecond = 50e6;

}  // namespace

Findings judge_folder(const FolderFacts& folder, const std::vector<RankFacts>& facts,
                      const std::vector<Node>& nodes) {
  Findings findings;
  const auto add = [&](Level level, std::string what, std::string next) {
    findings.push_back({level, "run folder", std::move(what), std::move(next)});
  };
  if (!folder.error.empty()) {
    add(Level::kError, fmt::format("rank 0 ({}): {}", facts[0].host, folder.error),
        "give a run folder that can be written to (--run-dir, run.dir)");
    return findings;
  }
  const auto host = [&](const FolderView& view) {
    return facts[static_cast<size_t>(view.rank)].host;
  };
  const std::vector<int> node_of = node_of_ranks(nodes);
  std::vector<int> blind;
  const FolderView* first_blind = nullptr;
  for (const FolderView& view : folder.views) {
    if (!view.error.empty()) {
      add(Level::kError,
          fmt::format("rank {} ({}): {}: {}", view.rank, host(view), view.path, view.error),
          "the run folder must be one that all ranks can write to, on a file system of all nodes");
    } else if (!view.visible) {
      blind.push_back(view.rank);
      if (first_blind == nullptr) first_blind = &view;
    }
  }
  if (first_blind != nullptr)
    add(Level::kError,
        fmt::format("{} do{} not see what rank 0 writes to {}: rank {} ({}) looked into {}",
                    ranks_text(blind), blind.size() == 1 ? "es" : "", folder.views[0].path,
                    first_blind->rank, host(*first_blind), first_blind->path),
        "the run folder must be one that all ranks share: an absolute path on a file system of all "
        "nodes");

  std::vector<std::string> said;  // nodes of one file system lack the same
  for (const FolderView& view : folder.views)
    for (const std::string& lack : view.lacks)
      if (std::find(said.begin(), said.end(), lack) == said.end()) {
        said.push_back(lack);
        add(Level::kWarning, lack, "keep the run folder on another file system, or live with it");
      }
  for (const FolderView& view : folder.views) {
    if (view.lock == "held" || view.lock == "not tried") continue;
    const bool other_node = node_of[static_cast<size_t>(view.rank)] != node_of[0];
    if (view.lock == "not held")
      add(Level::kWarning,
          fmt::format("a lock of rank 0 ({}) does not keep rank {} ({}) out: two runs {} are not "
                      "kept apart in this folder",
                      facts[0].host, view.rank, host(view),
                      other_node ? "on two nodes" : "on one node"),
          "mount it with locks of all nodes (Lustre: flock, not localflock; NFS: not local_lock)");
    else
      add(Level::kWarning,
          fmt::format("rank {} ({}): no locks: {}", view.rank, host(view), view.lock),
          "nothing needs to be done: the run folder's file .owner takes their place, which a start "
          "after a kill waits up to 60 s for");
  }
  if (folder.odd_reads > 0)
    add(Level::kWarning,
        fmt::format("rank {} met a file that was neither the old nor the new one {} times while it "
                    "was replaced {} times by rename",
                    folder.reader, folder.odd_reads, folder.renames),
        "files of a run may look damaged for a moment on other nodes; resume only when the last "
        "start has ended everywhere");

  for (const FolderView& view : folder.views) {
    if (!view.looked || !view.visible) continue;
    if (view.free >= 0 && view.free < kLeastRoom)
      add(Level::kWarning,
          fmt::format("only {} are free, as {} sees it", bytes_text(view.free), host(view)),
          "make room, or choose another run.dir; checkpoint.keep says how many checkpoints stay");
    const auto slow = [&](double bytes_per_s, const char* doing) {
      if (bytes_per_s > 0 && bytes_per_s < kLeastBytesPerSecond)
        add(Level::kWarning, fmt::format("{} {} {}", host(view), doing, rate_text(bytes_per_s)),
            "use a parallel file system, or checkpoint.staging_dir on the nodes' own disks");
    };
    slow(view.write_bytes_per_s, "writes");
    slow(view.read_bytes_per_s, "reads");
  }
  return findings;
}

}  // namespace tessera::doctor

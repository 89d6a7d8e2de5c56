#pragma once

#include <vector>

#include "doctor/facts/facts.h"
#include "doctor/facts/measured.h"
#include "doctor/facts/nodes.h"
#include "doctor/judge/finding.h"

// What facts and measurements mean: functions of numbers alone, each with its rule. All ranks call
// them with the same arguments and come to the same findings.
namespace tessera::doctor {

// Program, libraries, kernel and processor differ between ranks. Another program is an error; other
// libraries and processors are warnings, since replicas of a parameter may drift apart; another
// kernel, C library or driver is all right.
Findings judge_versions(const std::vector<RankFacts>& facts);

// A variable that ranks have otherwise, or that some lack.
Findings judge_environment(const std::vector<RankFacts>& facts);

// Ranks whose MPI has chosen differently; an active InfiniBand device that MPI does not use.
Findings judge_transports(const std::vector<RankFacts>& facts);

// Of several nodes: an address that two of them have alike, unless a variable already tells MPI to
// leave its interface out; no subnet that all share.
Findings judge_network(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes);

// - a rank computes with more threads than it may use;
// - ranks are bound to the same hardware threads, more threads than these are, while others of the
//   node are left to nobody;
// - with `crowded` also: a node's ranks compute with more threads than they may use together.
Findings judge_cores(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes,
                     bool crowded);

// What a rank may need in shared memory: before a run starts, and of what is left once its groups
// have been made.
inline constexpr int64_t kSharedBeforeStart = int64_t{16} << 20;
inline constexpr int64_t kSharedWhenStarted = int64_t{2} << 20;

// Memory for less than 512 MiB a rank; less than `shared_per_rank` of /dev/shm for each rank of a
// node (where the node has several ranks); limits on memory, locked memory (with InfiniBand), open
// files and processes.
Findings judge_limits(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes,
                      int64_t shared_per_rank);

// Devices for InfiniBand that are not active; nodes with other numbers of GPUs.
Findings judge_devices(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes);

// Clocks more than a second apart. `ahead`: seconds, by rank.
Findings judge_clocks(const std::vector<double>& ahead, const std::vector<RankFacts>& facts,
                      const std::vector<Node>& nodes);

// Ranks that do not see the folder or cannot write to it are errors; what the file system lacks,
// less than 1 GiB of room and less than 50 MB/s are warnings.
Findings judge_folder(const FolderFacts& folder, const std::vector<RankFacts>& facts,
                      const std::vector<Node>& nodes);

// Whether a pair is slower than its like: pairs inside nodes are compared with each other, and so
// are pairs across nodes. Slow is less than half of their median bandwidth, or a latency of more
// than three times their median and 50 us above it; from three pairs on.
bool is_outlier(const PairSpeed& pair, const std::vector<PairSpeed>& alike);

// The outliers, at most four by name; less than 300 MB/s between nodes.
Findings judge_pairs(const std::vector<PairSpeed>& pairs, const std::vector<RankFacts>& facts,
                     const std::vector<Node>& nodes);

// A group of an axis below half of the median of that axis's groups; a tp group across nodes, which
// is an error unless `tp_across_nodes`.
Findings judge_axes(const std::vector<AxisSpeed>& axes, bool tp_across_nodes);

// Ranks below 0.8 of the median of all ranks, of each dtype.
Findings judge_products(const std::vector<ProductSpeed>& products,
                        const std::vector<RankFacts>& facts);

}  // namespace tessera::doctor

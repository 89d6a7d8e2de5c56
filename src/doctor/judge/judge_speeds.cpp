#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "doctor/facts/numbers.h"
#include "doctor/judge/judge.h"

namespace tessera::doctor {
namespace {

constexpr size_t kLeastAlike = 3;
constexpr double kSlowBandwidth = 0.5;  // of the median
constexpr double kSlowLatency = 3.0;
constexpr double kLatencySlackUs = 50.0;
constexpr double kSlowLink = 300e6;  // bytes per second between nodes
constexpr double kSlowGroup = 0.5;
constexpr double kSlowProduct = 0.8;
constexpr size_t kMostNamed = 4;

double median_bandwidth(const std::vector<PairSpeed>& pairs) {
  std::vector<double> values;
  for (const PairSpeed& pair : pairs) values.push_back(pair.bytes_per_s);
  return median(std::move(values));
}

double median_latency(const std::vector<PairSpeed>& pairs) {
  std::vector<double> values;
  for (const PairSpeed& pair : pairs) values.push_back(pair.latency_us);
  return median(std::move(values));
}

}  // namespace

bool is_outlier(const PairSpeed& pair, const std::vector<PairSpeed>& alike) {
  if (alike.size() < kLeastAlike) return false;
  const double latency = median_latency(alike);
  return pair.bytes_per_s < kSlowBandwidth * median_bandwidth(alike) ||
         (pair.latency_us > kSlowLatency * latency && pair.latency_us > latency + kLatencySlackUs);
}

Findings judge_pairs(const std::vector<PairSpeed>& pairs, const std::vector<RankFacts>& facts,
                     const std::vector<Node>& nodes) {
  Findings findings;
  const std::vector<int> node_of = node_of_ranks(nodes);
  for (const bool across : {false, true}) {
    std::vector<PairSpeed> alike, slow;
    for (const PairSpeed& pair : pairs)
      if ((node_of[static_cast<size_t>(pair.from)] != node_of[static_cast<size_t>(pair.to)]) ==
          across)
        alike.push_back(pair);
    for (const PairSpeed& pair : alike)
      if (is_outlier(pair, alike)) slow.push_back(pair);
    const double bandwidth = median_bandwidth(alike);
    const double latency_s = median_latency(alike) * 1e-6;
    for (size_t i = 0; i < std::min(slow.size(), kMostNamed); ++i)
      findings.push_back(
          {Level::kWarning, "pairs",
           fmt::format("rank {} ({}) to rank {} ({}): {}, {}; the median {} is {}, {}",
                       slow[i].from, facts[static_cast<size_t>(slow[i].from)].host, slow[i].to,
                       facts[static_cast<size_t>(slow[i].to)].host, rate_text(slow[i].bytes_per_s),
                       time_text(slow[i].latency_us * 1e-6), across ? "between nodes" : "in a node",
                       rate_text(bandwidth), time_text(latency_s)),
           across
               ? "measure again; look at the link's speed (ethtool, ibstat) and what else uses "
                 "it; leave the node out (sbatch --exclude)"
               : "measure again; look for another job on these cores and at the binding of ranks"});
    if (slow.size() > kMostNamed)
      findings.push_back({Level::kWarning, "pairs",
                          fmt::format("{} more pairs {} are as slow", slow.size() - kMostNamed,
                                      across ? "between nodes" : "in a node"),
                          "--json lists all pairs"});
    if (across && !alike.empty() && bandwidth < kSlowLink)
      findings.push_back(
          {Level::kWarning, "pairs",
           fmt::format("between nodes {} is the median of {} pairs", rate_text(bandwidth),
                       alike.size()),
           "use the faster interface if there is one (UCX_NET_DEVICES, --mca "
           "btl_tcp_if_include); keep tp inside nodes; dp_replicate across nodes and dp_shard "
           "inside them, or zero: 1, send less"});
  }
  return findings;
}

Findings judge_axes(const std::vector<AxisSpeed>& axes, bool tp_across_nodes) {
  Findings findings;
  std::map<std::string, std::vector<double>> by_axis;
  for (const AxisSpeed& group : axes) by_axis[group.axis].push_back(group.bytes_per_s);
  for (const AxisSpeed& group : axes) {
    const std::vector<double>& alike = by_axis[group.axis];
    const double middle = median(alike);
    if (alike.size() >= kLeastAlike && group.bytes_per_s < kSlowGroup * middle)
      findings.push_back(
          {Level::kWarning, "axes",
           fmt::format("{} group of {}: {}; the median is {}", group.axis, ranks_text(group.ranks),
                       rate_text(group.bytes_per_s), rate_text(middle)),
           "measure again; the pairs of these ranks say which link is slow"});
    if (group.axis == "tp" && !group.one_node)
      findings.push_back(
          {tp_across_nodes ? Level::kWarning : Level::kError, "axes",
           fmt::format(
               "the tp group of {} straddles nodes: every layer's activations travel between "
               "them, at {}",
               ranks_text(group.ranks), rate_text(group.bytes_per_s)),
           "let tp divide the ranks of a node and number ranks node by node (mpirun --map-by slot, "
           "srun --distribution=block), or set parallel.allow_tp_across_nodes: true"});
  }
  return findings;
}

Findings judge_products(const std::vector<ProductSpeed>& products,
                        const std::vector<RankFacts>& facts) {
  Findings findings;
  std::map<std::string, std::vector<double>> by_dtype;
  for (const ProductSpeed& product : products) by_dtype[product.dtype].push_back(product.flops);
  for (const ProductSpeed& product : products) {
    const double middle = median(by_dtype[product.dtype]);
    if (product.flops >= kSlowProduct * middle) continue;
    findings.push_back(
        {Level::kWarning, "products",
         fmt::format("rank {} ({}) multiplies {} matrices at {:.1f} GFLOP/s, {:.2f} of the median "
                     "{:.1f}",
                     product.rank, facts[static_cast<size_t>(product.rank)].host, product.dtype,
                     product.flops * 1e-9, product.flops / middle, middle * 1e-9),
         "measure again; look at what else runs there (top), its clock rate and temperature, and "
         "the binding of ranks: every step waits for the slowest rank"});
  }
  return findings;
}

}  // namespace tessera::doctor

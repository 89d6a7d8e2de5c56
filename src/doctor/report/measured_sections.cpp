#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/text/quantities.h"
#include "doctor/facts/numbers.h"
#include "doctor/report/sections.h"

namespace tessera::doctor {
namespace {

constexpr size_t kMostRows = 24;
constexpr int kMostInMatrix = 16;

// "least 1.2, median 3.4, most 5.6", each with its unit.
template <typename Text>
std::string spread_text(std::vector<double> values, Text&& text) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = *least, high = *most;
  return fmt::format("least {}, median {}, most {}", text(low), text(median(std::move(values))),
                     text(high));
}

// A cell for each pair, symmetric.
void add_matrix(Table& table, const std::vector<PairSpeed>& pairs, int ranks, const char* unit,
                const std::function<std::string(const PairSpeed&)>& cell) {
  std::vector<std::string> head = {unit};
  for (int rank = 0; rank < ranks; ++rank) head.push_back(fmt::format("{}", rank));
  table.rows.push_back(head);
  for (int row = 0; row < ranks; ++row) {
    std::vector<std::string> cells = {fmt::format("rank {}", row)};
    for (int column = 0; column < ranks; ++column) {
      const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const PairSpeed& pair) {
        return std::minmax(pair.from, pair.to) == std::minmax(row, column);
      });
      cells.push_back(row == column ? "." : found == pairs.end() ? "" : cell(*found));
    }
    table.rows.push_back(std::move(cells));
  }
}

std::string lock_text(const FolderView& view) {
  return view.lock == "held" ? "works" : view.lock;
}

}  // namespace

Table folder_table(const FolderFacts& folder, const std::vector<RankFacts>& facts) {
  Table table{"run folder", {}};
  if (!folder.error.empty()) {
    table.rows.push_back({folder.error});
    return table;
  }
  std::vector<int> seen;
  for (const FolderView& view : folder.views)
    if (view.visible) seen.push_back(view.rank);
  table.rows.push_back({"path", folder.views[0].path});
  table.rows.push_back(
      {"seen by", seen.size() == folder.views.size()
                      ? "all ranks"
                      : fmt::format("{} of {} ranks", seen.size(), folder.views.size())});
  for (const FolderView& view : folder.views) {
    if (!view.looked || !view.visible) continue;
    const std::string host = facts[static_cast<size_t>(view.rank)].host;
    table.rows.push_back(
        {host, fmt::format("{}, {} free; sync {}; lock {}",
                           view.file_system.empty() ? "file system not told" : view.file_system,
                           view.free < 0 ? "not told" : bytes_text(view.free),
                           view.lacks.empty() ? "works" : "missing", lock_text(view))});
    if (view.write_bytes_per_s > 0)
      table.rows.push_back(
          {host, fmt::format("writes {}, reads {}", rate_text(view.write_bytes_per_s),
                             rate_text(view.read_bytes_per_s))});
  }
  table.rows.push_back(
      {"rename", folder.reader < 0 ? fmt::format("{} times, no other rank read", folder.renames)
                                   : fmt::format("{} times, {} odd reads by rank {}",
                                                 folder.renames, folder.odd_reads, folder.reader)});
  table.shorten(kMostRows);
  return table;
}

Table pairs_table(const std::vector<PairSpeed>& pairs, int ranks, const std::vector<Node>& nodes,
                  const std::string& way) {
  Table table{fmt::format("pairs of ranks, {}", way), {}};
  if (pairs.empty()) {
    table.rows.push_back({"there is one rank"});
    return table;
  }
  if (ranks <= kMostInMatrix) {
    add_matrix(table, pairs, ranks, "MB/s", [](const PairSpeed& pair) {
      return fmt::format("{:.0f}", pair.bytes_per_s * 1e-6);
    });
    add_matrix(table, pairs, ranks, "us",
               [](const PairSpeed& pair) { return fmt::format("{:.0f}", pair.latency_us); });
  }
  const std::vector<int> node_of = node_of_ranks(nodes);
  for (const bool across : {false, true}) {
    std::vector<double> bandwidths, latencies;
    for (const PairSpeed& pair : pairs) {
      if ((node_of[static_cast<size_t>(pair.from)] != node_of[static_cast<size_t>(pair.to)]) !=
          across)
        continue;
      bandwidths.push_back(pair.bytes_per_s);
      latencies.push_back(pair.latency_us * 1e-6);
    }
    if (bandwidths.empty()) continue;
    const char* const where = across ? "between nodes" : "in a node";
    table.rows.push_back(
        {fmt::format("{} pairs {}: {}; {}", bandwidths.size(), where,
                     spread_text(bandwidths, rate_text), spread_text(latencies, time_text))});
  }
  return table;
}

Table axes_table(const std::vector<AxisSpeed>& axes) {
  Table table{"mesh axes", {}};
  for (const AxisSpeed& group : axes)
    table.rows.push_back(
        {group.axis, ranks_text(group.ranks), group.one_node ? "in a node" : "across nodes",
         fmt::format("all-reduce of one number {}", time_text(group.all_reduce_us * 1e-6)),
         fmt::format("all-gather {} a rank", rate_text(group.bytes_per_s))});
  table.shorten(kMostRows);
  if (table.rows.empty()) table.rows.push_back({"no axis has several ranks"});
  return table;
}

Table products_table(const std::vector<ProductSpeed>& products,
                     const std::vector<RankFacts>& facts) {
  Table table{"matrix products, all ranks at once", {}};
  std::map<int, std::vector<std::string>> rows;
  for (const ProductSpeed& product : products) {
    std::vector<std::string>& row = rows[product.rank];
    if (row.empty())
      row = {fmt::format("rank {}", product.rank), facts[static_cast<size_t>(product.rank)].host};
    row.push_back(fmt::format("{} {:.1f} GFLOP/s", product.dtype, product.flops * 1e-9));
  }
  for (auto& [rank, row] : rows) table.rows.push_back(std::move(row));
  table.shorten(kMostRows);
  return table;
}

Table findings_table(const Findings& findings) {
  Table table{"findings", {}};
  for (const Level level : {Level::kError, Level::kWarning, Level::kOk})
    for (const Finding& finding : findings) {
      if (finding.level != level) continue;
      table.rows.push_back({nlohmann::json(level).get<std::string>(),
                            fmt::format("{}: {}", finding.section, finding.what)});
      table.rows.push_back({"", fmt::format("next: {}", finding.next)});
    }
  if (table.rows.empty()) table.rows.push_back({"nothing to report"});
  return table;
}

}  // namespace tessera::doctor

#include "doctor/examine.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/judge/judge.h"
#include "doctor/measure/measure.h"
#include "doctor/probes/probes.h"
#include "doctor/report/sections.h"

namespace tessera::doctor {
namespace {

constexpr int kMostRounds = 200;  // of pairs, about 50 ms each

// Whether the groups of the axes fit into the shared memory of every node.
bool windows_fit(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    return facts[static_cast<size_t>(node.ranks[0])].memory.shared_free >=
           static_cast<int64_t>(node.ranks.size()) * 2 * kSharedWhenStarted;
  });
}

std::vector<AxisPlace> places_of(const DoctorOptions& options, const Communicator& world) {
  if (options.mesh) return axes_of(*options.mesh, world.rank());
  if (world.size() == 1) return {};
  return {{"all ranks", world.size(), 0, world.rank()}};
}

std::string way_of(const DoctorOptions& options, const Communicator& world) {
  if (!world.device().is_cpu()) return "through NCCL";
  return options.shared_memory && world.on_one_node() ? "through shared memory"
                                                      : "through MPI messages";
}

}  // namespace

bool Examination::has_errors() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.level == Level::kError; });
}

Examination examine(Communicator& world, const DoctorOptions& options,
                    const std::function<void(const Table&)>& show) {
  Examination found;
  const auto tell = [&](const Table& table) {
    if (show) show(table);
  };
  const auto add = [&](const Findings& more) {
    found.findings.insert(found.findings.end(), more.begin(), more.end());
  };

  found.facts = gather_facts(world, collect_facts(world.rank(), options.threads, Depth::kAll));
  const std::vector<RankFacts>& facts = found.facts;
  found.nodes = nodes_of(facts);
  const std::vector<Node>& nodes = found.nodes;
  tell(versions_table(facts));
  add(judge_versions(facts));
  tell(environment_table(facts));
  add(judge_environment(facts));
  tell(transports_table(facts));
  add(judge_transports(facts));
  tell(network_table(facts, nodes));
  add(judge_network(facts, nodes));
  tell(devices_table(facts, nodes));
  add(judge_devices(facts, nodes));
  tell(cores_table(facts));
  add(judge_cores(facts, nodes, true));
  tell(limits_table(facts, nodes));
  add(judge_limits(facts, nodes, options.shared_memory ? kSharedBeforeStart : 0));
  found.clocks = measure_clocks(world);
  tell(clocks_table(found.clocks, nodes));
  add(judge_clocks(found.clocks, facts, nodes));

  if (!options.run_dir.empty()) {
    found.folder = try_run_folder(world, options.run_dir, nodes, !options.quick);
    tell(folder_table(*found.folder, facts));
    add(judge_folder(*found.folder, facts, nodes));
  }
  if (options.quick) return found;

  std::vector<std::vector<int>> ranks_of_nodes;
  for (const Node& node : nodes) ranks_of_nodes.push_back(node.ranks);
  const PairPlan plan = plan_pairs(ranks_of_nodes, kMostRounds);
  found.pairs = measure_pairs(world, plan, world.device());
  Table pairs = pairs_table(found.pairs, world.size(), nodes, way_of(options, world));
  if (!plan.all_across)
    pairs.rows.push_back({"of so many ranks not every pair between nodes was measured"});
  tell(pairs);
  add(judge_pairs(found.pairs, facts, nodes));

  if (!options.shared_memory || windows_fit(facts, nodes)) {
    found.axes = measure_axes(world, places_of(options, world), world.device());
    tell(axes_table(found.axes));
    add(judge_axes(found.axes, options.tp_across_nodes));
  } else {
    tell({"mesh axes", {{"not measured: /dev/shm is too full for their groups"}}});
  }

  found.products = measure_products(world, Device::of(world.device()), options.threads);
  tell(products_table(found.products, facts));
  add(judge_products(found.products, facts));
  return found;
}

nlohmann::json to_json(const Examination& e) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const Node& node : e.nodes) nodes.push_back({{"host", node.host}, {"ranks", node.ranks}});
  nlohmann::json json = {{"nodes", nodes},         {"findings", e.findings}, {"facts", e.facts},
                         {"clocks", e.clocks},     {"pairs", e.pairs},       {"axes", e.axes},
                         {"products", e.products}, {"folder", nullptr}};
  if (e.folder) json["folder"] = *e.folder;
  return json;
}

}  // namespace tessera::doctor

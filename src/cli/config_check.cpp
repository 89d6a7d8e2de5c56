#include "cli/config_check.h"

#include <fmt/format.h>

#include <ostream>

#include "base/error.h"
#include "base/text/error_text.h"
#include "base/text/quantities.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/store/run_folder.h"
#include "config/load.h"
#include "config/rules/resolve_mesh.h"
#include "training/engine/memory_forecast.h"
#include "training/output/memory_report.h"
#include "training/start/initial_weights.h"
#include "training/start/model_record.h"
#include "training/start/open_data.h"

namespace tessera {
namespace {

// Runs a part of a start that throws what is wrong; `keys` are what it is about.
template <typename Part>
void try_part(const std::vector<std::string>& keys, RuleReport& report, Part part) {
  try {
    part();
  } catch (const Error& error) {
    report.broken(keys, "{}", without_subsystem(error.what()));
  }
}

// The ranks of a tp group are numbered one after the other, and so are the ranks of a node.
void check_nodes(const Config& config, int ranks_per_node, const std::optional<int>& ranks,
                 RuleReport& report) {
  const int tp = config.parallel.tp;
  if (config.parallel.allow_tp_across_nodes || ranks_per_node % tp == 0 ||
      (ranks && *ranks <= ranks_per_node))
    return;
  report.broken({"parallel.tp", "parallel.allow_tp_across_nodes"},
                "parallel.tp: {}; with {} ranks a node a tp group would straddle nodes; let tp "
                "divide the ranks of a node, or set parallel.allow_tp_across_nodes: true",
                tp, ranks_per_node);
}

// The step folder that the run would start from.
void check_start(const Config& config, RuleReport& report) {
  const CheckpointSection& c = config.checkpoint;
  const bool resumes = c.resume != "auto" && c.resume != "none";
  if (resumes)
    try_part({"checkpoint.resume"}, report, [&] {
      check_step_folder(c.resume, "checkpoint.resume");
      read_manifest(c.resume);
    });
  if (!c.init_from.empty())
    try_part({"checkpoint.init_from", "model"}, report, [&] {
      check_same_model(look_at_weights(c.init_from).model, *config.model, c.init_from);
    });
}

}  // namespace

void check_configuration(const ConfigArguments& arguments, const ConfigCheckOptions& options,
                         std::ostream& out) {
  if (options.device_memory && !options.ranks)
    fail_user("cli", "--device-memory needs --ranks: how much a rank holds depends on the mesh");
  Mistakes mistakes;
  const LoadedConfig loaded = arguments.read(mistakes);
  const Config& config = loaded.config;
  PlacedReport report(loaded.places, mistakes);
  const bool sound = mistakes.empty();  // what follows computes with the values
  std::optional<MeshShape> mesh;
  if (options.ranks && !loaded.places.refused("model"))
    mesh = resolve_mesh(config, *options.ranks, report);
  if (options.ranks_per_node) check_nodes(config, *options.ranks_per_node, options.ranks, report);
  if (options.data) {
    check_start(config, report);
    if (!loaded.places.refused("model") && !loaded.places.refused("data") && sound)
      check_data_files(config, report);
  }
  std::optional<MemoryForecast> forecast;
  if (sound)
    try_part({"optimizer.groups", "precision.keep_fp32"}, report, [&] {
      // Made without --ranks too, since it finds patterns of names that fit no parameter.
      forecast = forecast_memory(config, mesh.value_or(MeshShape{1, 1, config.parallel.tp}));
    });
  if (forecast && mesh && options.device_memory)
    check_memory_limit(*forecast, *options.device_memory, report);
  mistakes.throw_if_any();

  out << arguments.file << ": ok";
  if (mesh)
    out << fmt::format(", dp_replicate {} x dp_shard {} x tp {}", mesh->dp_replicate,
                       mesh->dp_shard, mesh->tp);
  out << "\n";
  if (!mesh || !forecast) return;
  const int64_t total = forecast->ledger.total();
  out << fmt::format("memory of rank 0: {}in memory {}, activations not counted",
                     ledger_text(forecast->ledger), bytes_text(total));
  if (options.device_memory)
    out << fmt::format("; {} are left for them", bytes_text(*options.device_memory - total));
  out << "\n";
}

}  // namespace tessera

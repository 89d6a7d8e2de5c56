#include <fmt/format.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/text/quantities.h"
#include "cli/batch_script.h"
#include "cli/command_line.h"
#include "cli/config_arguments.h"
#include "config/rules/resolve_mesh.h"
#include "training/engine/memory_forecast.h"

namespace tessera {
namespace {

struct LaunchArguments {
  ConfigArguments config;
  std::string nodes;
  std::optional<int> ranks_per_node, cpus_per_rank, gpus_per_node;
  uint64_t memory = 0;  // bytes a node; 0: from the forecast
  std::string time = "1:00:00";
  int lead = 120;
  std::vector<std::string> options;
  bool submit = false;
};

std::filesystem::path own_path() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

// launch/train.sbatch of the repository that this program lies in, or of the working folder.
std::filesystem::path train_script() {
  std::filesystem::path folder = own_path().parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path())
    if (exists(folder / "launch/train.sbatch")) return folder / "launch/train.sbatch";
  if (exists(std::filesystem::path("launch/train.sbatch")))
    return std::filesystem::absolute("launch/train.sbatch");
  fail_user("launch",
            "launch/train.sbatch is neither above {} nor in the working folder; call this from the "
            "repository's root",
            own_path().string());
}

// The mesh must fit every number of nodes that the job may get, and tp a node.
void check_meshes(const Config& config, const NodeRange& nodes, int ranks_per_node) {
  const int tp = config.parallel.tp;
  if (ranks_per_node % tp != 0 && nodes.most > 1 && !config.parallel.allow_tp_across_nodes)
    fail_user("launch",
              "--ranks-per-node: {}; with parallel.tp: {} a tp group would straddle nodes; let tp "
              "divide the ranks of a node, or set parallel.allow_tp_across_nodes: true",
              ranks_per_node, tp);
  for (int n = nodes.fewest; n <= nodes.most; ++n) resolve_mesh(config, n * ranks_per_node);
}

BatchScript batch_script(const LaunchArguments& arguments) {
  const Config config = arguments.config.load();
  const bool on_gpu = config.device == "cuda";
  BatchScript script;
  script.nodes = NodeRange::parse(arguments.nodes);
  script.gpus_per_node = arguments.gpus_per_node.value_or(0);
  if (on_gpu && script.gpus_per_node == 0)
    script.gpus_per_node = arguments.ranks_per_node.value_or(config.parallel.tp);
  if (!on_gpu && script.gpus_per_node > 0)
    fail_user("launch", "--gpus-per-node: {}; device: {} uses none", script.gpus_per_node,
              config.device);
  script.ranks_per_node =
      arguments.ranks_per_node.value_or(on_gpu ? script.gpus_per_node : config.parallel.tp);
  if (on_gpu && script.ranks_per_node > script.gpus_per_node)
    fail_user("launch", "--ranks-per-node: {}; a rank needs a GPU, and --gpus-per-node is {}",
              script.ranks_per_node, script.gpus_per_node);
  script.cpus_per_rank = arguments.cpus_per_rank.value_or(on_gpu ? 8 : 1);
  check_meshes(config, script.nodes, script.ranks_per_node);

  // The fewest nodes: there a rank holds the most.
  const MeshShape mesh = resolve_mesh(config, script.nodes.fewest * script.ranks_per_node);
  if (arguments.memory > 0) {
    script.memory_mib = static_cast<int64_t>(arguments.memory >> 20);
  } else {
    const int64_t states = forecast_memory(config, mesh).ledger.total();
    script.memory_mib = script.ranks_per_node * rank_memory_mib(states, on_gpu);
    script.memory_reason = fmt::format(
        "{} ranks; `config check` counts {} of states a rank{}. Raise it after an out-of-memory "
        "kill (--mem).",
        script.ranks_per_node, bytes_text(states),
        on_gpu ? ", on the GPU" : ", and activations may take as much");
  }
  script.time = arguments.time;
  script.lead = arguments.lead;
  script.options = arguments.options;
  script.train_script = train_script().string();
  script.program = own_path().string();
  script.arguments = {arguments.config.file};
  for (const std::string& value : arguments.config.overrides) {
    script.arguments.emplace_back("--set");
    script.arguments.push_back(value);
  }
  return script;
}

// Hands the script to sbatch, whose own words say the job's number.
int submit(const std::string& script) {
  std::cout.flush();
  FILE* sbatch = ::popen("exec sbatch", "w");
  if (sbatch == nullptr) fail("launch", "no process could be started for sbatch");
  const bool written = std::fwrite(script.data(), 1, script.size(), sbatch) == script.size();
  const int status = ::pclose(sbatch);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  if (code == 127)
    fail_user("launch", "--submit: sbatch is not there; this machine knows no Slurm");
  if (code != 0 || !written)
    fail_user("launch",
              "--submit: sbatch refused the script with exit code {}; its reason is above", code);
  return kExitDone;
}

void add_sbatch(CLI::App& parent, Action& action) {
  CLI::App& command = add_command(
      parent, "sbatch",
      "Print the batch script of Slurm for a configuration, with the ranks, cores, GPUs and memory "
      "that it needs. The script runs launch/train.sbatch; docs/cluster.md says what that does.");
  const auto arguments = std::make_shared<LaunchArguments>();
  arguments->config.add_to(command);
  command
      .add_option("--nodes", arguments->nodes,
                  "Nodes: 4, or 2-4 for as many as are free (dp_shard: auto)")
      ->required()
      ->type_name("N");
  const auto add_count = [&](const char* name, std::optional<int>& value, const char* what) {
    command.add_option(name, value, what)->check(CLI::Range(1, 65536))->type_name("N");
  };
  add_count("--ranks-per-node", arguments->ranks_per_node,
            "Ranks a node; else parallel.tp, or the GPUs of a node");
  add_count("--cpus-per-rank", arguments->cpus_per_rank,
            "Cores a rank, which are its threads; else 1, with device: cuda 8");
  add_count("--gpus-per-node", arguments->gpus_per_node,
            "GPUs a node, with device: cuda; else one a rank");
  command
      .add_option("--mem", arguments->memory,
                  "Host memory a node: 64GB, 64GiB; else from what `config check` counts")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("SIZE");
  command.add_option("--time", arguments->time, "Time limit of each turn, as Slurm writes it")
      ->capture_default_str();
  command
      .add_option("--lead", arguments->lead,
                  "Seconds before the time limit at which the ranks are asked to save")
      ->check(CLI::Range(30, 65535))
      ->capture_default_str();
  command
      .add_option("--sbatch", arguments->options,
                  "A further option of sbatch: --sbatch=--partition=gpu; as often as needed")
      ->type_name("OPTION")
      ->allow_extra_args(false);
  command.add_flag("--submit", arguments->submit, "Submit the script instead of printing it");
  command.callback([&action, arguments] {
    action = [arguments] {
      const std::string script = batch_script(*arguments).text();
      if (arguments->submit) return submit(script);
      std::cout << script;
      return kExitDone;
    };
  });
}

}  // namespace

void add_launch_command(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "launch", "Start a run on a cluster.");
  command.require_subcommand(1);
  add_sbatch(command, action);
}

}  // namespace tessera

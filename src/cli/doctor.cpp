#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "base/exit_codes.h"
#include "base/process/omp_num_threads.h"
#include "cli/command_line.h"
#include "cli/config_arguments.h"
#include "cli/launch_environment.h"
#include "cli/report_failure.h"
#include "config/rules/check_device.h"
#include "doctor/examine.h"
#include "doctor/report/sections.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/device/choose_gpu.h"
#include "parallel/device/cuda_support.h"

namespace tessera {
namespace {

struct DoctorArguments {
  ConfigArguments config;  // no file: all ranks are one group
  std::string run_dir;
  bool quick = false;
  bool json = false;
};

// Nothing that the doctor does keeps a rank from the others for longer.
constexpr std::chrono::seconds kTimeout{60};

// A run's configuration as far as the doctor needs it.
struct Wanted {
  doctor::DoctorOptions options;
  bool cuda = false;
};

Wanted read_arguments(const DoctorArguments& arguments, std::optional<int> ranks) {
  Wanted wanted;
  wanted.options.quick = arguments.quick;
  wanted.options.threads = omp_num_threads();
  if (!arguments.config.file.empty()) {
    const Config config = arguments.config.load(ranks);
    check_device_here(config);
    wanted.cuda = config.device == "cuda";
    wanted.options.run_dir = config.run.dir;
    wanted.options.tp_across_nodes = config.parallel.allow_tp_across_nodes;
    wanted.options.shared_memory = config.communication.shared_memory;
    if (config.run.threads > 0) wanted.options.threads = config.run.threads;
    if (ranks) wanted.options.mesh = resolve_mesh(config, *ranks);
  }
  if (!arguments.run_dir.empty()) wanted.options.run_dir = arguments.run_dir;
  return wanted;
}

// Prints sections as they come, then the findings; with --json one object at the end. Rank 0 alone.
int examine_and_print(Communicator& world, const DoctorArguments& arguments, const Wanted& wanted,
                      const doctor::Findings& before) {
  const auto begun = std::chrono::steady_clock::now();
  const bool root = world.rank() == 0, text = root && !arguments.json;
  const auto print = [&](const doctor::Table& table) {
    if (!text) return;
    std::cout << text_of(table) << "\n" << std::flush;
  };
  doctor::Examination found = doctor::examine(world, wanted.options, print);
  found.findings.insert(found.findings.begin(), before.begin(), before.end());
  if (root && arguments.json) std::cout << to_json(found).dump(2) << "\n";
  print(doctor::findings_table(found.findings));
  if (text) {
    const auto count = [&](doctor::Level level) {
      return std::count_if(found.findings.begin(), found.findings.end(),
                           [&](const doctor::Finding& finding) { return finding.level == level; });
    };
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    std::cout << fmt::format(
        "{} rank{} on {} node{}, started {}: {} errors, {} warnings, {:.1f} s\n", world.size(),
        world.size() == 1 ? "" : "s", found.nodes.size(), found.nodes.size() == 1 ? "" : "s",
        found.facts[0].launcher, count(doctor::Level::kError), count(doctor::Level::kWarning),
        taken.count());
  }
  return found.has_errors() ? kExitFailed : kExitDone;
}

// The ranks of MPI. Where /dev/shm is too small for their windows, that is a finding, and messages
// take their place.
std::unique_ptr<Communicator> make_world(MpiRuntime& runtime, Wanted& wanted,
                                         doctor::Findings& findings) {
  MpiOptions options{
      .timeout = kTimeout, .file_timeout = kTimeout, .shared_memory = wanted.options.shared_memory};
  try {
    return make_mpi_world(runtime, options);
  } catch (const SharedMemoryFull& full) {
    findings.push_back({doctor::Level::kError, "limits", full.what(),
                        "communication.shared_memory: false, or a larger /dev/shm"});
    wanted.options.shared_memory = options.shared_memory = false;
    return make_mpi_world(runtime, options);
  }
}

std::unique_ptr<Communicator> on_gpus(std::unique_ptr<Communicator> host, const Wanted& wanted,
                                      MpiRuntime::NodePlace place) {
  if (!wanted.cuda) return host;
  const Device gpu = Device::cuda(choose_gpu(place.rank, place.ranks, visible_gpus()));
  return make_nccl_world(std::move(host), gpu, {.timeout = kTimeout, .file_timeout = kTimeout});
}

int run_doctor(const DoctorArguments& arguments) {
  const bool launched = MpiRuntime::launched();
  // One process that nobody launched looks at its machine, whatever mesh the configuration is for.
  Wanted wanted =
      read_arguments(arguments, launched ? LaunchEnvironment::read().ranks : std::nullopt);
  if (!launched)
    return examine_and_print(*on_gpus(make_self_communicator(), wanted, {0, 1}), arguments, wanted,
                             {});
  MpiRuntime runtime(nullptr, nullptr);
  int rank = 0;
  try {
    doctor::Findings findings;
    std::unique_ptr<Communicator> world = make_world(runtime, wanted, findings);
    rank = world->rank();
    // What a launcher did not tell before MPI started is known now.
    if (!wanted.options.mesh && !arguments.config.file.empty())
      wanted.options.mesh = read_arguments(arguments, world->size()).options.mesh;
    world = on_gpus(std::move(world), wanted, runtime.node_place());
    return examine_and_print(*world, arguments, wanted, findings);
  } catch (const std::exception& error) {
    // Peers may be waiting for this rank in a collective: end the job, do not unwind into MPI.
    runtime.abort(report_failure(error, rank));
  }
}

}  // namespace

void add_doctor_command(CLI::App& app, Action& action) {
  CLI::App& command = add_command(
      app, "doctor",
      "Look at the ranks' machines, network and files, measure them, and say what to mend: in this "
      "process, or on all ranks of mpirun or srun (docs/doctor.md).");
  const auto arguments = std::make_shared<DoctorArguments>();
  command.add_option("--config", arguments->config.file,
                     "A configuration, whose mesh is measured and whose run folder is tried");
  command
      .add_option("--set", arguments->config.overrides,
                  "Override a key of CONFIG: --set parallel.tp=2; as often as needed")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->needs("--config");
  command.add_option("--run-dir", arguments->run_dir, "The run folder to try, in place of run.dir");
  command.add_flag("--quick", arguments->quick,
                   "Leave out what takes time: speeds of disks, links, axes and products");
  command.add_flag("--json", arguments->json, "Print one JSON object with all that was found");
  command.callback(
      [&action, arguments] { action = [arguments] { return run_doctor(*arguments); }; });
}

}  // namespace tessera

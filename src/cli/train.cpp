#include "training/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/exit_codes.h"
#include "cli/command_line.h"
#include "cli/config_arguments.h"
#include "cli/launch_environment.h"
#include "cli/report_failure.h"
#include "config/keys/with_keys.h"
#include "config/rules/check_device.h"
#include "parallel/comm/core/abort_state.h"
#include "parallel/comm/core/checked_communicator.h"
#include "parallel/comm/core/comm_record.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/device/choose_gpu.h"
#include "parallel/device/cuda_support.h"
#include "training/watch/launcher.h"
#include "training/watch/watchdog.h"

namespace tessera {
namespace {

int train_on(const Config& config, std::unique_ptr<Communicator> world,
             const Observers& observers) {
  if (config.debug.check_collectives) world = make_checked(std::move(world));
  const StopSignal stop_signal;
  const TrainOutcome outcome = train(config, std::move(world), stop_signal, {}, observers);
  return outcome == TrainOutcome::kStoppedAfterSave ? kExitStopped : kExitDone;
}

// The limit of file work, never shorter than the usual limit.
std::chrono::seconds file_timeout(const Config& config) {
  return std::chrono::seconds(
      std::max(config.communication.timeout, config.communication.file_timeout));
}

// The communicator for tensors on the configured device: with device: cpu `host` itself, else an
// NCCL world on top of it.
std::unique_ptr<Communicator> on_device(const Config& config, std::unique_ptr<Communicator> host,
                                        MpiRuntime::NodePlace place) {
  if (config.device == "cpu") return host;
  const Device gpu = Device::cuda(choose_gpu(place.rank, place.ranks, visible_gpus()));
  return make_nccl_world(std::move(host), gpu,
                         {.timeout = std::chrono::seconds(config.communication.timeout),
                          .file_timeout = file_timeout(config)});
}

// Without a destructor: what this process waits for may never come.
[[noreturn]] void end_process(int exit_code) {
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(exit_code);
}

// On the screen, and then at the end of the log, whose file system may hang.
void tell(const Verdict& verdict, const std::filesystem::path& log) {
  const std::string text = fmt::format("error: {}\n", verdict.text);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  if (std::FILE* file = std::fopen(log.c_str(), "a")) {
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
}

// Null where there is nobody to watch, or the launcher does not say before MPI starts who is there.
std::unique_ptr<Watchdog> make_watchdog(const Config& config, const Place& place) {
  const LaunchEnvironment environment = LaunchEnvironment::read();
  const int ranks = environment.ranks.value_or(1);
  if (ranks == 1) return nullptr;
  const std::filesystem::path logs = std::filesystem::path(config.run.dir) / "logs";
  return std::make_unique<Watchdog>(
      place, WatchdogOptions{
                 .limits = config.watchdog,
                 .rank = environment.rank,
                 .ranks = ranks,
                 .id = launch_id(),
                 .log_folder = logs,
                 .tell = [log = logs / "train.log"](const Verdict& verdict) { tell(verdict, log); },
                 .end_process = end_process,
                 .asked_to_stop = stop_signal_came});
}

// Everything that the configuration can be wrong about is found before MPI starts, by each rank for
// itself. Then the objects of a run are locals, built in order and gone in reverse.
int run_train(const ConfigArguments& arguments) {
  const bool launched = MpiRuntime::launched();
  const std::optional<int> ranks = launched ? LaunchEnvironment::read().ranks : 1;
  const Config config = arguments.load(ranks);
  check_device_here(config);
  if (!launched) return train_on(config, on_device(config, make_self_communicator(), {0, 1}), {});

  Place place;
  const std::unique_ptr<Watchdog> watchdog = make_watchdog(config, place);
  const MpiOptions options{.timeout = std::chrono::seconds(config.communication.timeout),
                           .file_timeout = file_timeout(config),
                           .shared_memory = config.communication.shared_memory};
  place.enter(Phase::kConnect, 0);
  std::optional<MpiRuntime> runtime;
  int rank = 0;
  try {
    runtime.emplace(nullptr, nullptr);
    return with_keys<SharedMemoryFull>("communication.shared_memory: false", [&] {
      std::unique_ptr<Communicator> world = make_mpi_world(*runtime, options);
      rank = world->rank();
      std::optional<Watchdog::World> watched;
      if (watchdog)
        watched.emplace(
            *watchdog, [record = world->record()] { return record->view(); },
            [abort = world->abort_state()](const std::string& why) { abort->raise(why); });
      return train_on(config, on_device(config, std::move(world), runtime->node_place()),
                      {&place, watchdog.get()});
    });
  } catch (const std::exception& error) {
    // Peers may be waiting for this rank in a collective: end the job, do not unwind into MPI.
    std::optional<int> code;
    if (watchdog) code = watchdog->report(error.what(), exit_code_of(error));
    if (!runtime && code) end_process(*code);
    if (!runtime) throw;  // MPI has not started, on no rank
    runtime->abort(code ? *code : report_failure(error, rank));
  }
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  CLI::App& command = add_command(
      app, "train",
      "Train as configured: on this process, or on all ranks of mpirun or srun. Goes on from the "
      "newest checkpoint of the run folder unless checkpoint.resume says otherwise.");
  const auto arguments = std::make_shared<ConfigArguments>();
  arguments->add_to(command);
  command.callback(
      [&action, arguments] { action = [arguments] { return run_train(*arguments); }; });
}

}  // namespace tessera

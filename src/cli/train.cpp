#include "training/train.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/exit_codes.h"
#include "base/process/crash_report.h"
#include "cli/command_line.h"
#include "cli/config_arguments.h"
#include "cli/launch_environment.h"
#include "cli/report_failure.h"
#include "config/keys/with_keys.h"
#include "config/rules/check_device.h"
#include "parallel/comm/core/checked_communicator.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/device/choose_gpu.h"
#include "parallel/device/cuda_support.h"

namespace tessera {
namespace {

// What a report of a crash says of this rank, while its record lives.
class CrashName {
 public:
  explicit CrashName(const StartRecord& record) {
    set_crash_name(record.name());
    set_crash_step(&record.step_counter());
  }
  ~CrashName() { set_crash_step(nullptr); }
  CrashName(const CrashName&) = delete;
  CrashName& operator=(const CrashName&) = delete;
};

int train_on(const Config& config, std::unique_ptr<Communicator> world, StartRecord& record) {
  if (config.debug.check_collectives) world = make_checked(std::move(world));
  const StopSignal stop_signal;
  record.set_world(world->rank(), world->size());
  const CrashName crash_name(record);
  const TrainOutcome outcome =
      train(config, std::move(world), stop_signal, {}, {.record = &record});
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

// Everything that the configuration can be wrong about is found before MPI starts, by each rank for
// itself, and told once (main). What goes wrong later is told by the start's record. The objects of
// a run are locals, built in order and gone in reverse.
int run_train(const ConfigArguments& arguments) {
  const bool launched = MpiRuntime::launched();
  const std::optional<int> ranks = launched ? LaunchEnvironment::read().ranks : 1;
  const Config config = arguments.load(ranks);
  check_device_here(config);
  StartRecord record(voice_of_rank());
  if (!launched) {
    try {
      return train_on(config, on_device(config, make_self_communicator(), {0, 1}), record);
    } catch (const std::exception& error) {
      return record.failed(error);
    }
  }

  const MpiOptions options{.timeout = std::chrono::seconds(config.communication.timeout),
                           .file_timeout = file_timeout(config),
                           .shared_memory = config.communication.shared_memory};
  std::optional<MpiRuntime> started;
  try {
    started.emplace(nullptr, nullptr);
  } catch (const std::exception& error) {
    return report_failure(error, LaunchEnvironment::read().rank);
  }
  MpiRuntime& runtime = *started;
  // Another rank has told why it does not train.
  if (const auto refusal = runtime.find_refusal(kExitDone)) return refusal->code;
  try {
    return with_keys<SharedMemoryFull>("communication.shared_memory: false", [&] {
      std::unique_ptr<Communicator> world = make_mpi_world(runtime, options);
      record.set_world(world->rank(), world->size());
      return train_on(config, on_device(config, std::move(world), runtime.node_place()), record);
    });
  } catch (const std::exception& error) {
    // Peers may be waiting for this rank in a collective: end the job, do not unwind into MPI.
    runtime.abort(record.failed(error));
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

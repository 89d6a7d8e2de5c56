#include "training/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/exit_codes.h"
#include "base/process/crash_report.h"
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

int train_on(const Config& config, std::unique_ptr<Communicator> world,
             const Observers& observers) {
  if (config.debug.check_collectives) world = make_checked(std::move(world));
  const StopSignal stop_signal;
  observers.record->set_world(world->rank(), world->size());
  const CrashName crash_name(*observers.record);
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

void say(const Verdict& verdict) {
  std::fprintf(stderr, "error: %s\n", verdict.text.c_str());
  std::fflush(stderr);
}

Outcome outcome_of(const Verdict& verdict) {
  Outcome outcome;
  outcome.kind =
      verdict.exit_code == kExitUserError ? Outcome::Kind::kUserError : Outcome::Kind::kFailed;
  outcome.reason = reason_name(verdict.reason);
  outcome.cause = verdict.text;
  if (!verdict.ranks.empty()) outcome.rank = verdict.ranks.front();
  outcome.host = verdict.host;
  return outcome;
}

// Null where there is nobody to watch, or the launcher does not say before MPI starts who is there.
std::unique_ptr<Watchdog> make_watchdog(const Config& config, const Place& place,
                                        StartRecord& record) {
  const LaunchEnvironment environment = LaunchEnvironment::read();
  const int ranks = environment.ranks.value_or(1);
  if (ranks == 1) return nullptr;
  WatchdogOptions options;
  options.limits = config.watchdog;
  options.rank = environment.rank;
  options.ranks = ranks;
  options.id = launch_id();
  options.log_folder = std::filesystem::path(config.run.dir) / "logs";
  options.claim = [&record](const Verdict& verdict) {
    return record.claim_verdict(outcome_of(verdict));
  };
  options.tell = say;
  options.record = [&record](const Verdict& verdict) {
    record.record_verdict("error: " + verdict.text, outcome_of(verdict));
  };
  options.end_process = end_process;
  options.asked_to_stop = stop_signal_came;
  return std::make_unique<Watchdog>(place, std::move(options));
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
      return train_on(config, on_device(config, make_self_communicator(), {0, 1}),
                      {.record = &record});
    } catch (const std::exception& error) {
      return record.failed(error);
    }
  }

  Place place;
  record.set_where([&place] { return place.view().text(); });
  std::unique_ptr<Watchdog> watchdog = make_watchdog(config, place, record);
  if (watchdog)
    record.set_judge([&watchdog](const std::string& error, int exit_code) {
      return watchdog->report(error, exit_code);
    });
  const MpiOptions options{.timeout = std::chrono::seconds(config.communication.timeout),
                           .file_timeout = file_timeout(config),
                           .shared_memory = config.communication.shared_memory};
  place.enter(Phase::kConnect, 0);
  std::optional<MpiRuntime> runtime;
  try {
    runtime.emplace(nullptr, nullptr);
  } catch (const std::exception& error) {
    if (watchdog)
      if (const auto code = watchdog->report(error.what(), exit_code_of(error))) end_process(*code);
    return report_failure(error, LaunchEnvironment::read().rank);
  }
  // Another rank has told why it does not train.
  if (const auto refusal = runtime->find_refusal(kExitDone)) return refusal->code;
  try {
    return with_keys<SharedMemoryFull>("communication.shared_memory: false", [&] {
      std::unique_ptr<Communicator> world = make_mpi_world(*runtime, options);
      record.set_world(world->rank(), world->size());
      std::optional<Watchdog::World> watched;
      if (watchdog)
        watched.emplace(
            *watchdog, [groups = world->record()] { return groups->view(); },
            [abort = world->abort_state()](const std::string& why) { abort->raise(why); });
      return train_on(config, on_device(config, std::move(world), runtime->node_place()),
                      {&place, watchdog.get(), &record});
    });
  } catch (const std::exception& error) {
    const int code = record.failed(error);
    // Told by this rank itself, it is all ranks' error: nobody is to look for who is gone.
    if (!record.judged()) watchdog.reset();
    // Peers may be waiting for this rank in a collective: end the job, do not unwind into MPI.
    runtime->abort(code);
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
